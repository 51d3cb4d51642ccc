"""A plain row is what every row is read as, or it is none."""

from pathlib import Path
from typing import Any

import pytest

from eagle3.chat.chat_template import load_chat_template
from eagle3.chat.conversation import Conversation
from eagle3.chat.formats import detect_format, parse_row
from eagle3.chat.jsonl import Record
from eagle3.chat.pattern import Patterns
from eagle3.chat.plain import read_plain
from tests.unit.tiny_target import make_target

USER = {"role": "user", "content": "One?"}
ANSWER = {"role": "assistant", "content": " Second\n"}
HUMAN = {"from": "human", "value": "One?"}
GPT = {"from": "gpt", "value": "Second"}

PLAIN = [
    {"messages": [USER, ANSWER]},
    {"messages": [{"role": "developer", "content": "Be brief."}, USER, ANSWER, USER, ANSWER]},
    {"messages": [USER, ANSWER], "kind": "code", "id": 7, "system": None, "prompt": None},
    {"conversations": [HUMAN, GPT], "messages": None, "tools": None},
    {"conversations": [{"from": "system", "value": "Be brief."}, HUMAN, GPT]},
]
MORE = [
    {"messages": [USER, ANSWER], "tools": []},
    {"messages": [USER, ANSWER], "prompt": "One?"},
    {"messages": [USER, ANSWER], "conversations": [HUMAN, GPT]},
    {"messages": [USER, ANSWER], "image": "x.png"},
    {"conversations": [HUMAN, GPT], "system": "Be brief."},
    {"messages": [USER, {"role": "assistant", "content": "<think>a</think>b"}]},
    {"messages": [USER, ANSWER | {"reasoning": "Look."}]},
    {"messages": [USER, {"role": "tool", "content": "x"}]},
    {"messages": [USER, {"role": ["assistant"], "content": "x"}]},
    {"messages": [USER, {"role": "robot", "content": "x"}]},
    {"messages": [USER, {"role": "assistant", "content": [{"type": "text", "text": "x"}]}]},
    {"messages": [{"role": "user", "content": " \n"}, ANSWER]},
    {"messages": [USER, "Second"]},
    {"messages": [HUMAN, GPT]},
    {"messages": []},
    {"messages": {"role": "user"}},
    {"conversations": [HUMAN, {"from": "function_call", "value": '{"name": "f"}'}]},
    {"instruction": "One?", "output": "Second"},
    {"prompt": [USER], "completion": "Second"},
    {"input_ids": [1, 2], "loss_mask": [0, 1]},
    {},
]


@pytest.mark.parametrize("row", PLAIN)
def test_a_plain_row_is_what_every_row_is_read_as(row: dict[str, Any]) -> None:
    plain = read_plain(row)
    assert plain is not None
    record = Record("d:1", row)
    found = parse_row(record, detect_format(record))
    assert isinstance(found, Conversation)
    assert found.is_plain
    assert plain.form == detect_format(record)
    assert list(plain.roles) == [message.role for message in found.messages]
    assert plain.contents == [message.content for message in found.messages]


@pytest.mark.parametrize("row", MORE)
def test_what_may_be_more_is_not_plain(row: dict[str, Any]) -> None:
    assert read_plain(row) is None


def test_a_form_that_is_named_is_the_only_one() -> None:
    assert read_plain(PLAIN[0], "messages") == read_plain(PLAIN[0])
    assert read_plain(PLAIN[0], "sharegpt") is None
    assert read_plain(PLAIN[3], "prompt") is None


@pytest.mark.parametrize(
    "roles",
    [
        ("assistant", "user"),
        ("user", "system", "assistant"),
        ("system", "assistant"),
        ("user",),
        ("system", "user"),
    ],
)
def test_an_order_in_which_nobody_is_asked_has_no_pattern(
    tmp_path: Path, roles: tuple[str, ...]
) -> None:
    patterns = Patterns(load_chat_template(make_target(tmp_path / "t")))
    assert patterns.find_plain(("system", "user", "assistant"), ["a", "b", "c"]) is not None
    assert patterns.find_plain(roles, ["a"] * len(roles)) is None
