"""Later prompts are the ids so far and the template's, wherever a server would give those."""

import datetime
from pathlib import Path

import pytest

from eagle3.chat.chat_template import load_chat_template
from eagle3.chat.conversation import Message
from eagle3.chat.serving import Served
from eagle3.errors import InputError
from tests.unit.chat.families import FAMILIES, make_family
from tests.unit.tiny_target import make_target

_DATE = datetime.date(2025, 1, 31)
_SAID = [
    Message("user", "What is one?"),
    Message("assistant", "It is one."),
    Message("user", "And two?"),
]
_THOUGHT = [_SAID[0], Message("assistant", "It is one.", "Easy."), _SAID[2]]
# Families of which the template leaves earlier answers as they were generated.
_KEEP = ["gemma3", "glm4", "kimi_k2", "llama3", "mistral", "qwen2_5", "smollm2", "smollm3"]


def served(folder: Path, name: str, *, thinking: bool = False) -> Served:
    template = load_chat_template(make_family(folder / name, FAMILIES[name]), date=_DATE)
    return Served(template, thinking)


def stop_id(target: Served, name: str) -> int:
    stops = FAMILIES[name].stops
    return target.template.tokenizer.convert_tokens_to_ids(stops[1 if name == "glm4" else 0])


@pytest.mark.parametrize("name", _KEEP)
def test_a_continued_conversation_is_what_a_server_renders(tmp_path: Path, name: str) -> None:
    target = served(tmp_path, name)
    stop = stop_id(target, name)
    prompt = target.whole(_SAID[:1], (), question=False)
    added = target.added(_SAID, (), stop, question=False)
    assert added is not None
    newline = "\n" if name == "glm4" else " " if name == "mistral" else ""
    answer = target.template.encode(newline + "It is one.")
    text = target.decode([*prompt, *answer, stop, *added])
    whole = target.decode(target.whole(_SAID, (), question=False))
    # A target of this family begins without the block that asks it not to think.
    assert text.replace("<think>\n\n</think>\n", "") == whole.replace("<think>\n\n</think>\n", "")


@pytest.mark.parametrize("name", ["deepseek_r1", "gpt_oss", "qwen3"])
def test_earlier_turns_that_are_rewritten_are_told(tmp_path: Path, name: str) -> None:
    target = served(tmp_path, name)
    assert target.added(_SAID, (), stop_id(target, name), question=False) is None


def test_reasoning_that_is_dropped_later_is_told(tmp_path: Path) -> None:
    target = served(tmp_path, "qwen3", thinking=True)
    stop = stop_id(target, "qwen3")
    assert target.added(_SAID, (), stop, question=False) is not None
    assert target.added(_THOUGHT, (), stop, question=False) is None


def test_another_end_than_the_templates_is_told(tmp_path: Path) -> None:
    target = served(tmp_path, "llama3")
    other = target.template.tokenizer.convert_tokens_to_ids("<|end_of_text|>")
    assert target.added(_SAID, (), other, question=False) is None


def test_what_was_answered_is_never_rendered(tmp_path: Path) -> None:
    target = served(tmp_path, "smollm2")
    stop = stop_id(target, "smollm2")
    odd = [_SAID[0], Message("assistant", "  <|im_end|> {{ 1 }} stand-in "), _SAID[2]]
    assert target.added(odd, (), stop, question=False) == target.added(
        _SAID, (), stop, question=False
    )


def test_a_user_is_asked_for_by_the_chat_prefix_alone(tmp_path: Path) -> None:
    target = served(tmp_path, "llama3")
    first = target.decode(target.whole([], (), question=True))
    assert first.endswith("<|start_header_id|>user<|end_header_id|>\n\n")
    added = target.added(_SAID[:2], (), stop_id(target, "llama3"), question=True)
    assert added is not None
    assert target.decode(added) == "<|start_header_id|>user<|end_header_id|>\n\n"


def test_an_answer_is_parted_into_reasoning_and_text(tmp_path: Path) -> None:
    target = served(tmp_path, "qwen3", thinking=True)
    encode = target.template.encode
    prompt = target.whole(_SAID[:1], (), question=False)
    thoughtful = target.message(encode("<think>\nEasy.\n</think>\n\nOne."), prompt)
    assert thoughtful == Message("assistant", "One.", "Easy.")
    assert target.message(encode("Easy.</think>One."), encode("<think>\n")) == thoughtful
    assert target.message(encode(" One."), prompt) == Message("assistant", "One.")
    assert target.message(encode("<|im_start|>One."), prompt) is None


def test_a_template_that_refuses_is_an_input_error(tmp_path: Path) -> None:
    model = make_target(tmp_path / "t", chat_template="{{ raise_exception('never') }}")
    target = Served(load_chat_template(model), thinking=False)
    with pytest.raises(InputError, match=r"refuses this conversation \(never\)"):
        target.whole(_SAID[:1], (), question=False)
    mute = make_target(tmp_path / "m", chat_template="{{ 'x' }}")
    with pytest.raises(InputError, match="does not show what a user says"):
        Served(load_chat_template(mute), thinking=False).whole([], (), question=True)
