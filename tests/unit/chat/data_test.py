"""Every kind of line is read, and every mistake is told with its line."""

import json
from pathlib import Path
from typing import Any

import pytest

from eagle3.chat.data import read_token_sequences
from eagle3.errors import InputError
from tests.unit.tiny_target import make_target

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "One?"}
ASSISTANT = {"role": "assistant", "content": "Eins."}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_target(tmp_path_factory.mktemp("model") / "target")


def write(folder: Path, *lines: Any) -> Path:
    path = folder / "data.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_both_forms_of_a_conversation_are_the_same_sample(tmp_path: Path, model: Path) -> None:
    sharegpt = [{"from": "human", "value": "One?"}, {"from": "gpt", "value": "Eins."}]
    data = write(tmp_path, {"messages": [USER, ASSISTANT]}, {"conversations": sharegpt})
    first, second = read_token_sequences(data, model)
    assert (first.input_ids, first.loss_mask) == (second.input_ids, second.loss_mask)
    assert (first.place, second.place) == ("data.jsonl:1", "data.jsonl:2")


def test_ready_token_ids_need_no_tokenizer(tmp_path: Path) -> None:
    data = write(
        tmp_path,
        {"input_ids": [3, 1, 2]},
        {"input_ids": [3, 1], "loss_mask": [0, 1]},
        {"input_ids": [9], "loss_mask": None},
    )
    sequences = list(read_token_sequences(data, tmp_path / "nothing here"))
    assert [sequence.input_ids for sequence in sequences] == [(3, 1, 2), (3, 1), (9,)]
    assert [sequence.loss_mask for sequence in sequences] == [(1, 1, 1), (0, 1), (1,)]


def test_limit_stops_before_the_next_line_is_read(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"input_ids": [1]}\n\n{"input_ids": [2]}\nnot JSON\n')
    assert len(list(read_token_sequences(data, tmp_path, limit=2))) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([1, 2], "a JSON object is needed here, not list"),
        ({"text": "hello"}, "exactly one of .* but has none"),
        ({"input_ids": [1], "messages": []}, "but has messages and input_ids"),
        ({"messages": "One?"}, "`messages` must be a list, not str"),
        ({"messages": []}, "the conversation is empty"),
        ({"messages": ["One?"]}, r"`messages\[0\]` must be an object, not str"),
        ({"messages": [USER, {"role": "bot", "content": "x"}]}, r"\[1\]`: `role` must be one of"),
        ({"messages": [USER, {"role": ["a"], "content": "x"}]}, r"\[1\]`: `role` must be one of"),
        ({"messages": [USER, {"role": "assistant"}]}, "`content` must be text, not NoneType"),
        ({"messages": [USER, {"role": "assistant", "content": " "}]}, "`content` is empty"),
        ({"messages": [USER, {**ASSISTANT, "reasoning": "x"}]}, "prepare the data with"),
        ({"messages": [USER, {**ASSISTANT, "image": "x"}]}, "`image` cannot be prepared"),
        ({"messages": [USER]}, "a prompt without an answer"),
        ({"messages": [ASSISTANT, USER]}, "the first turn .* must be the user's"),
        (
            {"messages": [SYSTEM]},
            "the first turn .* must be the user's",
        ),
        (
            {"messages": [USER, SYSTEM, ASSISTANT]},
            "a system prompt may only stand first",
        ),
        ({"conversations": [{"from": "human", "value": 1}]}, "`value` must be text, not int"),
        ({"input_ids": "1,2,3"}, "`input_ids` must be a list of integers, not str"),
        ({"input_ids": []}, "`input_ids` is empty"),
        ({"input_ids": [1, "2"]}, r"`input_ids\[1\]` is '2', not an integer"),
        ({"input_ids": [1, 2.0]}, r"`input_ids\[1\]` is 2.0, not an integer"),
        ({"input_ids": [True]}, r"`input_ids\[0\]` is True, not an integer"),
        ({"input_ids": [1, 2], "loss_mask": [1]}, "2 `input_ids` but 1 in `loss_mask`"),
        ({"input_ids": [1], "loss_mask": [2]}, "`loss_mask` may hold 0 and 1 only"),
        ({"input_ids": [1, 2], "loss_mask": [0, 0]}, "`loss_mask` is all 0"),
        ({"input_ids": [1], "loss_mask": 1}, "`loss_mask` must be a list of integers, not int"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, model: Path, line: Any, message: str) -> None:
    data = write(tmp_path, {"input_ids": [1]}, line)
    with pytest.raises(InputError, match=f"^data.jsonl:2: .*{message}"):
        list(read_token_sequences(data, model))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"input_ids": [1]}\n{"input_ids": [\n', "data.jsonl:2: not valid JSON: .* column 16"),
        (b'\n{"input_ids": \xff}\n', "data.jsonl:2: not UTF-8 .byte 15 of the line"),
        (b'{"prompt": "cut \\ud83d", "response": "x"}\n', "data.jsonl:1: holds half of a surrog"),
    ],
)
def test_what_is_not_json_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    data = tmp_path / "data.jsonl"
    data.write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(read_token_sequences(data, tmp_path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the data .*none\.jsonl: No such file"):
        list(read_token_sequences(tmp_path / "none.jsonl", tmp_path))
