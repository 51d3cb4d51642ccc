"""One rendering of the whole gives what rendering every turn gives, or gives way to it."""

import datetime
from pathlib import Path

import pytest

import eagle3.chat.answers
from eagle3.chat.answers import render_answers
from eagle3.chat.at_once import read_answers
from eagle3.chat.chat_template import ChatTemplate, load_chat_template
from eagle3.chat.conversation import Conversation, Message
from tests.unit.chat.families import FAMILIES, make_family
from tests.unit.tiny_target import CHAT_TEMPLATE, make_target

_TURNS = (
    Message("user", "One?"),
    Message("assistant", "First."),
    Message("user", "Two?"),
    Message("assistant", "Second, and \n\nmore"),
    Message("user", "Three?"),
    Message("assistant", "Third."),
)
_CONVERSATIONS = (
    _TURNS,
    (Message("system", "Be brief."), *_TURNS),
    (*_TURNS, Message("user", "Anybody?")),
    (*_TURNS[:3], Message("assistant", " Second. \n"), *_TURNS[4:]),
    (*_TURNS[:1], Message("assistant", "<|im_end|> </think> {{ x }}"), *_TURNS[2:]),
)


def template_of(folder: Path, name: str) -> ChatTemplate:
    date = datetime.date(2025, 1, 31)
    return load_chat_template(make_family(folder / name, FAMILIES[name]), date=date)


def parts(template: ChatTemplate, messages: tuple[Message, ...]) -> list[tuple[str, str]] | str:
    """Prompts and answers, or the refusal; what follows an answer is left out, as later."""
    try:
        answers = render_answers(Conversation("d:1", messages), template)
    except eagle3.chat.answers.InputError as error:
        return str(error)
    return [(answer.prompt, answer.whole) for answer in answers]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_gives_the_same(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = template_of(tmp_path, name)
    at_once = [parts(template, messages) for messages in _CONVERSATIONS]
    monkeypatch.setattr(eagle3.chat.answers, "read_answers", lambda *_: None)
    assert at_once == [parts(template, messages) for messages in _CONVERSATIONS]


@pytest.mark.parametrize(
    ("name", "whole"), [("smollm2", True), ("kimi_k2", True), ("qwen2_5", True), ("gpt_oss", False)]
)
def test_it_is_known_which_templates_leave_turns_alone(
    tmp_path: Path, name: str, whole: bool
) -> None:
    found = read_answers(Conversation("d:1", _TURNS), template_of(tmp_path, name))
    assert (found is not None) is whole


def test_content_that_the_template_changes_is_rendered_turn_by_turn(tmp_path: Path) -> None:
    trimming = CHAT_TEMPLATE.replace("message['content']", "message['content'] | trim")
    template = load_chat_template(make_target(tmp_path / "t", chat_template=trimming))
    assert read_answers(Conversation("d:1", _TURNS), template) is not None
    assert read_answers(Conversation("d:1", _CONVERSATIONS[3]), template) is None


def test_each_prompt_is_still_the_templates(tmp_path: Path) -> None:
    # What is asked last changes the header, which no stand-in could tell.
    asking = CHAT_TEMPLATE.replace(
        "'<|begin|>assistant\n'",
        "'<|begin|>assistant\n' + ('' if 'Two' not in messages[-1]['content'] else 'Two: ')",
    )
    template = load_chat_template(make_target(tmp_path / "t", chat_template=asking))
    assert read_answers(Conversation("d:1", _TURNS), template) is None


def test_renderings_do_not_grow_with_the_square(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = template_of(tmp_path, "smollm2")
    long = Conversation("d:1", _TURNS * 4)
    render_answers(long, template)  # learns how such conversations end
    rendered = []
    text = template.text
    monkeypatch.setattr(
        template, "text", lambda *given, **named: rendered.append(1) or text(*given, **named)
    )
    assert len(render_answers(long, template)) == 12
    assert len(rendered) == 12 + 1
