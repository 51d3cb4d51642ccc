"""A conversation in one form, whichever of the two common forms it was written in."""

from dataclasses import dataclass
from typing import Any

from eagle3.chat.jsonl import Record
from eagle3.errors import InputError

# The speaker names of ShareGPT files, as the role names that chat templates know.
_SHAREGPT_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
}
_ROLES = ("system", "user", "assistant")
# Turns that carry one of these say more than their text; passing it over in silence would show
# the target a conversation that never took place.
_NOT_TEXT = ("tool_calls", "function_call", "reasoning_content", "reasoning", "thinking", "images")


@dataclass(frozen=True)
class Message:
    """One turn. `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True)
class Conversation:
    """A user speaks first (after an optional system prompt) and an assistant answers."""

    place: str
    messages: tuple[Message, ...]


def parse_conversation(record: Record) -> Conversation:
    """Reads OpenAI `messages` (role, content) or ShareGPT `conversations` (from, value).

    Raises InputError where a turn is malformed or empty, or where no assistant answers.
    """
    if "messages" in record.fields:
        messages = _parse_turns(record, "messages", "role", "content", {r: r for r in _ROLES})
    else:
        messages = _parse_turns(record, "conversations", "from", "value", _SHAREGPT_ROLES)
    _check_order(record.place, messages)
    return Conversation(record.place, messages)


def _parse_turns(
    record: Record, key: str, role_key: str, text_key: str, roles: dict[str, str]
) -> tuple[Message, ...]:
    turns = record.fields[key]
    if not isinstance(turns, list):
        raise InputError(f"{record.place}: `{key}` must be a list, not {type(turns).__name__}")
    if not turns:
        raise InputError(f"{record.place}: the conversation is empty; remove the line")
    return tuple(
        _parse_turn(f"{record.place}: `{key}[{position}]`", turn, role_key, text_key, roles)
        for position, turn in enumerate(turns)
    )


def _parse_turn(
    place: str, turn: Any, role_key: str, text_key: str, roles: dict[str, str]
) -> Message:
    if not isinstance(turn, dict):
        raise InputError(f"{place} must be an object, not {type(turn).__name__}")
    role, content = turn.get(role_key), turn.get(text_key)
    if not isinstance(role, str) or role not in roles:
        raise InputError(f"{place}: `{role_key}` must be one of {', '.join(roles)}, not {role!r}")
    refused = [name for name in _NOT_TEXT if turn.get(name)]
    if refused:
        raise InputError(
            f"{place}: `{refused[0]}` cannot be rendered; give this sample as `input_ids` "
            "and `loss_mask`"
        )
    if not isinstance(content, str):
        raise InputError(f"{place}: `{text_key}` must be text, not {type(content).__name__}")
    if not content.strip():
        raise InputError(f"{place}: `{text_key}` is empty")
    return Message(roles[role], content)


def _check_order(place: str, messages: tuple[Message, ...]) -> None:
    roles = [message.role for message in messages]
    if "system" in roles[1:]:
        raise InputError(f"{place}: a system prompt may only stand first")
    if roles[int(roles[0] == "system") :][:1] != ["user"]:
        raise InputError(f"{place}: the first turn (after a system prompt) must be the user's")
    if "assistant" not in roles:
        raise InputError(f"{place}: no assistant turn, so nothing to train on")
