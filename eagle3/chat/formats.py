"""The forms in which data comes, and how a row tells its own."""

from collections.abc import Callable
from typing import Any

from eagle3.chat.conversation import (
    Conversation,
    Message,
    NothingToTrainOnError,
    check_order,
)
from eagle3.chat.jsonl import Record
from eagle3.chat.token_sequence import TokenSequence, parse_token_sequence
from eagle3.chat.turns import parse_tools, parse_turns, refuse_media
from eagle3.errors import InputError

# The column by which each form is known.
KEYS = {
    "messages": "messages",
    "sharegpt": "conversations",
    "alpaca": "instruction",
    "prompt": "prompt",
    "tokens": "input_ids",
}
_ANSWER_KEYS = ("completion", "response")


def detect_format(record: Record) -> str:
    """The one form of which `record` has the column; raises InputError for none or several."""
    # A table of mixed forms has all columns in every row, and nothing in most of them.
    present = [name for name, key in KEYS.items() if record.fields.get(key) is not None]
    if len(present) != 1:
        columns = [f"`{key}`" for key in KEYS.values()]
        found = " and ".join(KEYS[name] for name in present) or "none"
        raise InputError(
            f"{record.place}: needs exactly one of {', '.join(columns[:-1])} and {columns[-1]}, "
            f"but has {found}"
        )
    return present[0]


def parse_row(record: Record, form: str) -> Conversation | TokenSequence:
    """Reads `record` as `form`, one of KEYS.

    Raises NothingToTrainOnError for a well-formed row without an answer, and InputError for one
    that is malformed.
    """
    if form == "tokens":
        if "input_ids" not in record.fields:
            raise InputError(f"{record.place}: no `input_ids`")
        return parse_token_sequence(record)
    conversation = parse_questions(record, form)
    if not any(message.role == "assistant" for message in conversation.messages):
        raise NothingToTrainOnError(f"{record.place}: a prompt without an answer")
    return conversation


def parse_questions(record: Record, form: str) -> Conversation:
    """Reads `record` as `form`, whether anybody answers in it or not.

    Raises as `parse_row` does, and InputError for ready token ids, of which nobody can tell who
    said what.
    """
    if form == "tokens":
        raise InputError(f"{record.place}: token ids hold no questions to ask; give conversations")
    if record.fields.get(KEYS[form]) is None:
        raise InputError(f"{record.place}: no `{KEYS[form]}`")
    refuse_media(record.place, record.fields)
    messages = _PARSERS[form](record)
    check_order(record.place, messages)
    return Conversation(record.place, messages, parse_tools(record.place, record.fields))


def _parse_messages(record: Record) -> tuple[Message, ...]:
    return parse_turns(record.place, "messages", record.fields.get("messages"))


def _parse_sharegpt(record: Record) -> tuple[Message, ...]:
    messages = parse_turns(record.place, "conversations", record.fields.get("conversations"))
    system = record.fields.get("system")
    if isinstance(system, str) and system.strip() and messages[0].role != "system":
        return (Message("system", system), *messages)
    return messages


def _parse_alpaca(record: Record) -> tuple[Message, ...]:
    instruction = _filled(record, "instruction")
    addition = record.fields.get("input")
    if isinstance(addition, str) and addition.strip():
        instruction = f"{instruction}\n\n{addition}"
    return _dialogue(record, instruction, ("output",))


def _parse_prompt(record: Record) -> tuple[Message, ...]:
    prompt: Any = record.fields.get("prompt")
    if not isinstance(prompt, list):
        return _dialogue(record, _filled(record, "prompt"), _ANSWER_KEYS)
    turns = list(prompt)
    for key in _ANSWER_KEYS:
        answer = record.fields.get(key)
        if answer:
            # As preference and completion sets have it: both sides are lists of messages.
            turns += (
                answer if isinstance(answer, list) else [{"role": "assistant", "content": answer}]
            )
    return parse_turns(record.place, "messages", turns)


def _dialogue(record: Record, prompt: str, keys: tuple[str, ...]) -> tuple[Message, ...]:
    turns = [{"role": "user", "content": prompt}]
    answered = next((key for key in keys if record.fields.get(key) is not None), None)
    if answered is not None:
        turns.append({"role": "assistant", "content": record.fields[answered]})
    system = record.fields.get("system")
    if isinstance(system, str) and system.strip():
        turns.insert(0, {"role": "system", "content": system})
    return parse_turns(record.place, "messages", turns)


def _filled(record: Record, key: str) -> str:
    value = record.fields.get(key)
    if not isinstance(value, str):
        raise InputError(f"{record.place}: `{key}` must be text, not {type(value).__name__}")
    if not value.strip():
        raise InputError(f"{record.place}: `{key}` is empty")
    return value


_PARSERS: dict[str, Callable[[Record], tuple[Message, ...]]] = {
    "messages": _parse_messages,
    "sharegpt": _parse_sharegpt,
    "alpaca": _parse_alpaca,
    "prompt": _parse_prompt,
}
