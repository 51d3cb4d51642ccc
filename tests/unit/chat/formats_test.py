"""Every form of data becomes the same conversation; what is not text is refused."""

from typing import Any

import pytest

from eagle3.chat import turns
from eagle3.chat.conversation import Conversation, Message, NothingToTrainOnError, ToolCall
from eagle3.chat.formats import KEYS, detect_format, parse_row
from eagle3.chat.jsonl import Record
from eagle3.errors import InputError

ASKED = [Message("user", "One?"), Message("assistant", "Eins.")]
USER = {"role": "user", "content": "One?"}
ASSISTANT = {"role": "assistant", "content": "Eins."}
CALL = {"id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}}


def read(row: dict[str, Any]) -> Conversation:
    record = Record("d:1", row)
    conversation = parse_row(record, detect_format(record))
    assert isinstance(conversation, Conversation)
    return conversation


@pytest.mark.parametrize(
    ("row", "messages"),
    [
        ({"messages": [USER, ASSISTANT]}, ASKED),
        ({"prompt": "One?", "completion": "Eins."}, ASKED),
        ({"prompt": "One?", "response": "Eins."}, ASKED),
        ({"prompt": [USER], "completion": [ASSISTANT]}, ASKED),
        ({"prompt": [USER], "completion": "Eins."}, ASKED),
        ({"instruction": "One?", "input": "", "output": "Eins."}, ASKED),
        (
            {"instruction": "Translate.", "input": "One", "output": "Eins."},
            [Message("user", "Translate.\n\nOne"), ASKED[1]],
        ),
        (
            {
                "system": "S",
                "conversations": [
                    {"from": "human", "value": "One?"},
                    *[{"from": "gpt", "value": "Eins."}],
                ],
            },
            [Message("system", "S"), *ASKED],
        ),
        (
            {"messages": [{"role": "developer", "content": "S"}, USER, ASSISTANT]},
            [Message("system", "S"), *ASKED],
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "text", "text": "On"}, {"type": "text", "text": "e?"}],
                    },
                    ASSISTANT,
                ],
                "conversations": None,
            },
            ASKED,
        ),
        (
            {"messages": [USER, {**ASSISTANT, "reasoning_content": " r\n"}]},
            [ASKED[0], Message("assistant", "Eins.", "r")],
        ),
        (
            {"messages": [USER, {**ASSISTANT, "content": "<think>\nr\n</think>\n\nEins."}]},
            [ASKED[0], Message("assistant", "Eins.", "r")],
        ),
        (
            {
                "messages": [
                    USER,
                    {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [CALL, {**CALL, "id": "b"}],
                    },
                    {"role": "tool", "content": "1"},
                    {"role": "tool", "content": "2", "tool_call_id": "b"},
                ]
            },
            [
                ASKED[0],
                Message(
                    "assistant",
                    "",
                    tool_calls=(ToolCall("f", {"x": 1}, "a"), ToolCall("f", {"x": 1}, "b")),
                ),
                Message("tool", "1", name="f", tool_call_id="a"),
                Message("tool", "2", name="f", tool_call_id="b"),
            ],
        ),
        (
            {
                "conversations": [
                    {"from": "human", "value": "One?"},
                    {"from": "function_call", "value": '{"name": "f", "arguments": {"x": 1}}'},
                    {"from": "observation", "value": "1"},
                    {"from": "gpt", "value": "Eins."},
                ]
            },
            [
                ASKED[0],
                Message("assistant", "", tool_calls=(ToolCall("f", {"x": 1}, "call00000"),)),
                Message("tool", "1", name="f", tool_call_id="call00000"),
                ASKED[1],
            ],
        ),
    ],
)
def test_every_form_is_the_same_conversation(row: dict[str, Any], messages: list[Message]) -> None:
    assert list(read(row).messages) == messages


@pytest.mark.parametrize("wrap", [lambda tools: tools, __import__("json").dumps])
def test_tools_are_carried(wrap: Any) -> None:
    function = {"name": "f", "parameters": {}}
    whole = {"type": "function", "function": function}
    row = {"messages": [USER, ASSISTANT], "tools": wrap([function, whole])}
    assert read(row).tools == (whole, whole)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": [USER, ASSISTANT], "images": ["a.png"]}, "`images` cannot be prepared"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}, ASSISTANT]},
            "a part of `content` is 'image_url': text only",
        ),
        ({"messages": [USER, {**ASSISTANT, "content": "<think>x"}]}, "the answer is cut off"),
        ({"messages": [USER, {**ASSISTANT, "content": "<think>x</think>"}]}, "answer is empty"),
        ({"messages": [USER, {**ASSISTANT, "tool_calls": [{}]}]}, "a tool call needs a `name`"),
        ({"messages": [USER, {**ASSISTANT, "tool_calls": {"a": 1}}]}, "must be a list, not dict"),
        (
            {
                "messages": [
                    USER,
                    {**ASSISTANT, "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
                ]
            },
            "`arguments` is not valid JSON",
        ),
        (
            {"messages": [USER, {**ASSISTANT, "tool_calls": [{"name": "f", "arguments": [1]}]}]},
            "`arguments` must be an object, not list",
        ),
        ({"messages": [USER, {"role": "tool", "content": "1"}]}, "turn 2 is a tool's, but no tool"),
        ({"messages": [USER, {**ASSISTANT, "thinking": 1}]}, "`thinking` must be text, not int"),
        ({"messages": [USER, ASSISTANT], "tools": "["}, "`tools` is not valid JSON"),
        ({"messages": [USER, ASSISTANT], "tools": '["\\udc00"]'}, "`tools` holds half of a surrog"),
        ({"messages": [USER, ASSISTANT], "tools": "[" * 100_000}, "`tools` is nested too deeply"),
        ({"messages": [USER, ASSISTANT], "tools": [1]}, "`tools` must be a list of objects"),
        ({"instruction": 1, "output": "x"}, "`instruction` must be text, not int"),
        ({"prompt": " ", "completion": "x"}, "`prompt` is empty"),
    ],
)
def test_a_wrong_row_is_refused(row: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^d:1: .*{message}") as refusal:
        read(row)
    assert not isinstance(refusal.value, NothingToTrainOnError)


@pytest.mark.parametrize("form", ["messages", "sharegpt", "alpaca", "prompt", "tokens"])
def test_a_row_that_is_not_of_the_form_that_was_named(form: str) -> None:
    with pytest.raises(InputError, match=f"^d:1: no `{KEYS[form]}`$"):
        parse_row(Record("d:1", {"text": "x"}), form)


@pytest.mark.parametrize(
    "row", [{"prompt": "One?"}, {"prompt": [USER]}, {"messages": [USER]}, {"messages": []}]
)
def test_a_row_without_an_answer_is_told_from_a_wrong_one(row: dict[str, Any]) -> None:
    with pytest.raises(NothingToTrainOnError):
        read(row)


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "user", "content": "x"},
        {"role": "developer", "content": "x"},
        {"role": "assistant", "content": " x\n"},
        {"role": "assistant", "content": "a <think> in the middle"},
        {"role": "tool", "content": "x"},
        {"from": "human", "value": "x"},
        {"from": "function_call", "value": '{"name": "f"}'},
    ],
)
def test_turns_of_text_alone_are_read_as_all_others(
    turn: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "messages" if "role" in turn else "conversations"
    quick = turns.parse_turns("d:1", key, [turn])
    monkeypatch.setattr(turns, "read_plain_turns", lambda *_: None)
    assert turns.parse_turns("d:1", key, [turn]) == quick
