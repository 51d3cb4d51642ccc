"""Which part of a conversation is the prompt."""

import json
from pathlib import Path
from typing import Any

import pytest

from eagle3.errors import InputError
from eagle3.evaluation.prompts import PromptSet, read_prompts
from tests.unit.tiny_target import CHAT_TEMPLATE, make_target

ASK = {"role": "user", "content": "ask"}
TELL = {"role": "assistant", "content": "tell"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_target(tmp_path / "model")


def read(
    model: Path,
    *rows: dict[str, Any],
    limit: int = 10,
    longest: int = 100,
    thinking: bool = False,
) -> PromptSet:
    data = model.parent / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_prompts(data, model, limit, longest, thinking=thinking)


def text_of(model: Path, prompts: PromptSet) -> list[str]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    return [tokenizer.decode(prompt.tokens) for prompt in prompts.prompts]


def test_a_prompt_ends_where_the_target_answers(model: Path) -> None:
    prompts = read(model, {"messages": [ASK, TELL, {"role": "user", "content": "more"}, TELL]})
    assert text_of(model, prompts) == [
        "<|begin|>user\nask<|end|>\n<|begin|>assistant\ntell<|end|>\n"
        "<|begin|>user\nmore<|end|>\n<|begin|>assistant\n"
    ]
    assert len(prompts.stop_ids) >= 1


def test_a_question_without_an_answer_is_all_prompt(model: Path) -> None:
    prompts = read(model, {"prompt": "ask"}, {"messages": [ASK, TELL, ASK]})
    assert text_of(model, prompts) == [
        "<|begin|>user\nask<|end|>\n<|begin|>assistant\n",
        "<|begin|>user\nask<|end|>\n<|begin|>assistant\ntell<|end|>\n"
        "<|begin|>user\nask<|end|>\n<|begin|>assistant\n",
    ]


def test_a_target_that_can_think_is_asked_to_or_not_to(tmp_path: Path) -> None:
    # As Qwen's: an empty block asks the target not to think.
    opened = "'<|begin|>assistant\n' + ('' if enable_thinking else '<think></think>')"
    thinks = CHAT_TEMPLATE.replace("'<|begin|>assistant\n'", opened)
    model = make_target(tmp_path / "thinks", chat_template=thinks)
    asked = "<|begin|>user\nask<|end|>\n<|begin|>assistant\n"
    prompts = read(model, {"prompt": "ask"})
    assert text_of(model, prompts) == [f"{asked}<think></think>"]
    assert prompts.origin == "the first of data.jsonl"
    prompts = read(model, {"prompt": "ask"}, thinking=True)
    assert text_of(model, prompts) == [asked]
    assert prompts.origin == "the first of data.jsonl, asking to think"


def test_a_conversation_that_the_template_refuses_is_told(tmp_path: Path) -> None:
    refuses = "{{ raise_exception('System role not supported') }}"
    model = make_target(tmp_path / "refuses", chat_template=refuses)
    with pytest.raises(InputError, match=r"data.jsonl:1: .*System role not supported.*; remove"):
        read(model, {"prompt": "ask"})


def test_ready_tokens_are_cut_before_the_last_answer(model: Path) -> None:
    prompts = read(
        model,
        {"input_ids": [5, 6, 7, 8, 9, 10, 11], "loss_mask": [0, 1, 1, 0, 1, 1, 0]},
        {"input_ids": [5, 6, 7], "loss_mask": [0, 1, 1]},
    )
    assert [prompt.tokens for prompt in prompts.prompts] == [(5, 6, 7, 8), (5,)]


def test_kinds_are_told_apart(model: Path) -> None:
    rows = [{"messages": [ASK, TELL], "kind": kind} for kind in ("code", "chat", "code")]
    kinds = read(model, *rows, {"messages": [ASK, TELL]}).by_kind()
    assert {kind: len(prompts) for kind, prompts in kinds.items()} == {
        "code": 2,
        "chat": 1,
        "all": 1,
    }


def test_the_limit_holds(model: Path) -> None:
    assert len(read(model, *[{"messages": [ASK, TELL]}] * 5, limit=3).prompts) == 3


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param([], "no prompts in", id="nothing"),
        pytest.param([{"messages": [ASK, TELL]}], "at most 3", id="too long"),
        pytest.param([{"input_ids": [4, 5]}], "nothing stands before", id="only an answer"),
    ],
)
def test_what_is_no_prompt_is_refused(
    rows: list[dict[str, Any]], message: str, model: Path
) -> None:
    with pytest.raises(InputError, match=message):
        read(model, *rows, longest=3)
