"""Reads the turns of `messages` (OpenAI) and `conversations` (ShareGPT)."""

import json
from typing import Any

from eagle3.chat.conversation import Message, NothingToTrainOnError, ToolCall
from eagle3.chat.jsonl import HALF_CHARACTER, parse_json
from eagle3.errors import InputError


def _text_roles(roles: dict[str, str]) -> dict[str, str]:
    """Those of `roles` whose turns are never more than text."""
    return {
        name: role for name, role in roles.items() if role != "tool" and name != "function_call"
    }


_OPENAI_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
# The speaker names of ShareGPT files, as the role names that chat templates know.
_SHAREGPT_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "tool": "tool",
}
# Of what turns of text alone consist, under each key: speaker, text, and who may speak.
_PLAIN = {
    "messages": ("role", "content", _text_roles(_OPENAI_ROLES)),
    "conversations": ("from", "value", _text_roles(_SHAREGPT_ROLES)),
}
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_THINK_BEGIN, _THINK_END = "<think>", "</think>"
NOT_TEXT_KEYS = frozenset({"image", "images", "audio", "video", "videos"})


def parse_turns(place: str, key: str, turns: Any) -> tuple[Message, ...]:
    """Reads the list of turns under `key`, which is `messages` or `conversations`.

    Raises InputError, with the turn, where one is malformed, empty or more than text.
    """
    if not isinstance(turns, list):
        raise InputError(f"{place}: `{key}` must be a list, not {type(turns).__name__}")
    if not turns:
        raise NothingToTrainOnError(f"{place}: the conversation is empty; remove the line")
    plain = read_plain_turns(key, turns)
    if plain is not None:
        return tuple(map(Message, *plain))
    messages: list[Message] = []
    for position, turn in enumerate(turns):
        where = f"{place}: `{key}[{position}]`"
        if not isinstance(turn, dict):
            raise InputError(f"{where} must be an object, not {type(turn).__name__}")
        parse = _parse_openai if key == "messages" else _parse_sharegpt
        messages.append(_answering(parse(where, turn), messages))
    return tuple(messages)


def read_plain_turns(key: str, turns: list[Any]) -> tuple[list[str], list[str]] | None:
    """Roles and texts of turns that are nothing but text, as nearly all are; None for others."""
    role_key, content_key, known_roles = _PLAIN[key]
    roles: list[str] = []
    contents: list[str] = []
    for turn in turns:
        if not isinstance(turn, dict) or len(turn) != 2:
            return None
        role, content = turn.get(role_key), turn.get(content_key)
        if not isinstance(role, str) or role not in known_roles or not isinstance(content, str):
            return None
        if not content or content.isspace() or _THINK_BEGIN in content:
            return None
        roles.append(known_roles[role])
        contents.append(content)
    return roles, contents


def refuse_media(place: str, fields: dict[str, Any]) -> None:
    """Raises InputError where `fields` (a row or a turn) hold more than text."""
    for key in sorted(NOT_TEXT_KEYS.intersection(fields)):
        if fields[key]:
            raise InputError(f"{place}: `{key}` cannot be prepared: text only; remove the row")


def parse_tools(place: str, fields: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Reads the `tools` of a row: a list of functions, or such a list as JSON text."""
    tools = fields.get("tools")
    if isinstance(tools, str):
        tools = _json(f"{place}: `tools`", tools) if tools.strip() else None
    if not tools:
        return ()
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise InputError(f"{place}: `tools` must be a list of objects")
    return tuple(
        tool if "function" in tool else {"type": "function", "function": tool} for tool in tools
    )


def _parse_openai(where: str, turn: dict[str, Any]) -> Message:
    role = _role(where, turn, "role", _OPENAI_ROLES)
    refuse_media(where, turn)
    content = _text(where, "content", turn.get("content"), optional=bool(turn.get("tool_calls")))
    name, call_id = (turn.get(key) or "" for key in ("name", "tool_call_id"))
    if role != "assistant":
        return Message(role, content, name=str(name), tool_call_id=str(call_id))
    reasoning, content = _split_reasoning(where, turn, content)
    calls = turn.get("tool_calls") or []
    if not isinstance(calls, list):
        raise InputError(f"{where}: `tool_calls` must be a list, not {type(calls).__name__}")
    parsed = tuple(
        _parse_call(f"{where}: `tool_calls[{position}]`", call, position)
        for position, call in enumerate(calls)
    )
    return _checked_answer(where, Message(role, content, reasoning, parsed))


def _parse_sharegpt(where: str, turn: dict[str, Any]) -> Message:
    role = _role(where, turn, "from", _SHAREGPT_ROLES)
    refuse_media(where, turn)
    text = _text(where, "value", turn.get("value"), optional=False)
    if turn["from"] == "function_call":
        calls = _json(f"{where}: `value`", text)
        calls = calls if isinstance(calls, list) else [calls]
        parsed = tuple(_parse_call(where, call, position) for position, call in enumerate(calls))
        return Message(role, "", tool_calls=parsed)
    if role != "assistant":
        return Message(role, text)
    reasoning, text = _split_reasoning(where, turn, text)
    return _checked_answer(where, Message(role, text, reasoning))


def _role(where: str, turn: dict[str, Any], key: str, roles: dict[str, str]) -> str:
    role = turn.get(key)
    if not isinstance(role, str) or role not in roles:
        raise InputError(f"{where}: `{key}` must be one of {', '.join(roles)}, not {role!r}")
    return roles[role]


def _text(where: str, key: str, content: Any, *, optional: bool) -> str:
    if content is None and optional:
        return ""
    if isinstance(content, list):
        content = "".join(_part(where, key, part) for part in content)
    if not isinstance(content, str):
        raise InputError(f"{where}: `{key}` must be text, not {type(content).__name__}")
    if not content.strip() and not optional:
        raise InputError(f"{where}: `{key}` is empty")
    return content


def _part(where: str, key: str, part: Any) -> str:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return part["text"]
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    raise InputError(f"{where}: a part of `{key}` is {kind!r}: text only; remove the row")


def _split_reasoning(where: str, turn: dict[str, Any], content: str) -> tuple[str, str]:
    """The reasoning and the rest, from a field of its own or from `<think>` at the beginning."""
    for key in _REASONING_KEYS:
        if turn.get(key):
            if not isinstance(turn[key], str):
                raise InputError(f"{where}: `{key}` must be text, not {type(turn[key]).__name__}")
            return turn[key].strip(), content
    if not content.lstrip().startswith(_THINK_BEGIN):
        return "", content
    thought, end, rest = content.lstrip().removeprefix(_THINK_BEGIN).partition(_THINK_END)
    if not end:
        raise InputError(f"{where}: `{_THINK_BEGIN}` without `{_THINK_END}`: the answer is cut off")
    return thought.strip(), rest.lstrip()


def _checked_answer(where: str, message: Message) -> Message:
    if not message.content.strip() and not message.tool_calls:
        raise InputError(f"{where}: the answer is empty")
    return message


def _parse_call(where: str, call: Any, position: int) -> ToolCall:
    if not isinstance(call, dict):
        raise InputError(f"{where} must be an object, not {type(call).__name__}")
    function = call.get("function", call)
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise InputError(f"{where}: a tool call needs a `name`")
    arguments = function.get("arguments", function.get("parameters"))
    if isinstance(arguments, str):
        arguments = _json(f"{where}: `arguments`", arguments) if arguments.strip() else {}
    if not isinstance(arguments, dict | None):
        raise InputError(f"{where}: `arguments` must be an object, not {type(arguments).__name__}")
    # Nine letters and digits, which is what Mistral's templates insist on.
    return ToolCall(name, arguments or {}, str(call.get("id") or f"call{position:05}"))


def _answering(message: Message, earlier: list[Message]) -> Message:
    """`message`; a tool's result that does not say which call it answers takes the next one."""
    if message.role != "tool" or (message.name and message.tool_call_id):
        return message
    results = 0
    for before in reversed(earlier):
        if before.role != "tool":
            break
        results += 1
    calls = earlier[-results - 1].tool_calls if len(earlier) > results else ()
    known = [call for call in calls if call.id == message.tool_call_id] or calls[results:][:1]
    if not known:
        return message
    return Message(
        "tool",
        message.content,
        name=message.name or known[0].name,
        tool_call_id=message.tool_call_id or known[0].id,
    )


def _json(where: str, text: str) -> Any:
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where} is not valid JSON: {error.msg}") from error
    except UnicodeEncodeError as error:
        raise InputError(f"{where} {HALF_CHARACTER}") from error
    except RecursionError as error:
        raise InputError(f"{where} is nested too deeply") from error
