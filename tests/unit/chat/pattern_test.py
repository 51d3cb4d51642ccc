"""A pattern gives what rendering and encoding a conversation gives, or gives way to it."""

import datetime
from pathlib import Path

import pytest

from eagle3.chat.chat_template import ChatTemplate, load_chat_template
from eagle3.chat.conversation import Conversation, Message
from eagle3.chat.pattern import Patterns
from eagle3.chat.supervision import tokenize_turns
from eagle3.chat.token_sequence import TokenSequence
from eagle3.errors import InputError
from tests.unit.chat.families import FAMILIES, make_family
from tests.unit.tiny_target import CHAT_TEMPLATE, make_target

_SYSTEM = Message("system", " Be brief.\n")
_TURNS = (
    Message("user", "What is the weather?"),
    Message("assistant", "Fine."),
    Message("user", "\n\nTwo? "),
    Message("assistant", "Second, and \n\nmore\n"),
    Message("user", "Three <|im_start|>user?"),
    Message("assistant", " Third"),
    Message("user", "Anybody?"),
)
_CONVERSATIONS = (
    _TURNS[:2],
    _TURNS,
    (_SYSTEM, *_TURNS[:4]),
    (_TURNS[0], *_TURNS[:2], _TURNS[6], _TURNS[2]),
    (_TURNS[0], Message("assistant", "\n\n<b>1</b>\n\n"), *_TURNS[2:4]),
    (_TURNS[0], Message("assistant", "Ends <|im_end|> or <|eot_id|>, <|end|> </s> and on.")),
    (_TURNS[0], Message("assistant", "</think> and <think>"), *_TURNS[2:4]),
    (Message("user", "<tool_response>1</tool_response>"), *_TURNS[1:4]),
    (Message("user", "Hello", name="Ann"), *_TURNS[1:4]),
    (_TURNS[0], Message("assistant", "Fine.", reasoning="Look."), *_TURNS[2:4]),
)
# Those for which the template's way is proven; the others look at contents or rewrite turns.
_KNOWN = {"smollm2", "qwen2_5", "llama3", "deepseek_v3", "kimi_k2"}


def template_of(folder: Path, name: str) -> ChatTemplate:
    date = datetime.date(2025, 1, 31)
    return load_chat_template(make_family(folder / name, FAMILIES[name]), date=date)


def by_pattern(conversation: Conversation, template: ChatTemplate) -> TokenSequence | None:
    pattern = Patterns(template).find(conversation)
    if pattern is None:
        return None
    texts = pattern.texts([message.content for message in conversation.messages])
    ids, mask = [7], bytearray(b"\1")
    is_known = pattern.join(iter(template.encode_all(texts)), ids, mask)
    # What was there before stays, whatever becomes of this one.
    assert (ids[0], mask[0]) == (7, 1)
    assert len(ids) == len(mask)
    assert is_known or len(ids) == 1
    return TokenSequence(conversation.place, tuple(ids[1:]), tuple(mask[1:])) if is_known else None


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_gives_the_same(tmp_path: Path, name: str) -> None:
    template = template_of(tmp_path, name)
    known = 0
    for messages in _CONVERSATIONS:
        conversation = Conversation("d:1", messages)
        found = by_pattern(conversation, template)
        if found is not None:
            known += 1
            assert tokenize_turns(conversation, template) == [found]
    assert (known > 3) is (name in _KNOWN), known


def test_what_a_pattern_cannot_tell_is_left_to_rendering(tmp_path: Path) -> None:
    template = template_of(tmp_path, "smollm2")
    assert by_pattern(Conversation("d:1", _TURNS), template) is not None
    for messages in _CONVERSATIONS[5:7] + _CONVERSATIONS[8:]:
        assert by_pattern(Conversation("d:1", messages), template) is None
    with pytest.raises(InputError, match="2 end-of-turn tokens"):
        tokenize_turns(Conversation("d:1", _CONVERSATIONS[5]), template)


@pytest.mark.parametrize(
    "content",
    [
        "message['content'] | upper",
        "(message['content'] if message['content'] | length > 5 else 'short')",
        "(message['content'] if message['content'] != 'Fine.' else 'short')",
        "('' if message['content'] is iterable else '') + message['content']",
        "(message['content'] ~ '') | replace('Fine', 'Well')",
        "('%s' % message['content'])",
        "message['content'].split('.')[0]",
        "[message['content']] | join",
        "{'Fine.': 'Well.'}.get(message['content'], message['content'])",
        "(message['content'] if message['content'][0] == 'F' else 'short')",
        "message['content'].strip('.')",
        "message['content'] * 2",
        "(message['content'] if messages | map(attribute='content') | join == '' else 'x')",
    ],
)
def test_a_template_that_looks_at_contents_has_no_pattern(tmp_path: Path, content: str) -> None:
    source = CHAT_TEMPLATE.replace("message['content']", content)
    template = load_chat_template(make_target(tmp_path / "t", chat_template=source))
    assert Patterns(template).find(Conversation("d:1", _TURNS[:2])) is None


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("message['content'] | trim", None),
        ("message.content.strip()", None),
        ("(message['content'] if message['content'] is string else '?')", None),
        ("('?' if 'NB' in message['content'] else message['content'])", "NB: this."),
        ("('?' if message['content'].startswith('NB') else message['content'])", "NB: this."),
        ("('?' if message['content'].endswith('NB') else message['content'])", "This, NB"),
    ],
)
def test_what_a_template_asks_of_contents_is_asked_of_each(
    tmp_path: Path, content: str, text: str | None
) -> None:
    source = CHAT_TEMPLATE.replace("message['content']", content)
    template = load_chat_template(make_target(tmp_path / "t", chat_template=source))
    conversation = Conversation("d:1", _TURNS[:4])
    assert [by_pattern(conversation, template)] == tokenize_turns(conversation, template)
    if text is not None:
        asked = Conversation("d:1", (Message("user", text), _TURNS[1]))
        assert Patterns(template).find(asked) is None


def test_macros_and_blocks_have_no_pattern(tmp_path: Path) -> None:
    macro = "{% macro m(x) %}{{ x }}{% endmacro %}" + CHAT_TEMPLATE.replace(
        "message['content']", "m(message['content'])[:5]"
    )
    block = CHAT_TEMPLATE.replace(
        "{{ '<|begin|>'", "{% set x %}{{ message['content'] }}{% endset %}{{ x[:5] + '<|begin|>'"
    )
    recursive = (
        "{% for message in messages recursive %}{{ loop([message])[:5] if loop.depth < 2 }}"
        "{% endfor %}" + CHAT_TEMPLATE
    )
    for number, source in enumerate((macro, block, recursive)):
        template = load_chat_template(make_target(tmp_path / f"{number}", chat_template=source))
        assert Patterns(template).find(Conversation("d:1", _TURNS[:2])) is None
