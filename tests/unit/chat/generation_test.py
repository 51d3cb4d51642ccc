"""Templates that say themselves what is generated agree with transformers and with the prompt."""

from pathlib import Path

import pytest

from eagle3.chat.chat_template import load_chat_template
from eagle3.chat.conversation import Conversation, Message
from eagle3.chat.supervision import tokenize_turns
from tests.unit.chat.conversations import marked, parse
from tests.unit.tiny_target import CHAT_TEMPLATE, make_target

_MARKED = (
    "{% for message in messages %}{{ '<|begin|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|begin|>assistant\n' }}{% endif %}"
)


@pytest.mark.parametrize(
    "chat_template",
    [
        _MARKED,
        # Without a generation prompt only the marks tell where an answer begins.
        _MARKED.partition("{% if add_generation_prompt")[0],
    ],
)
def test_the_mask_is_that_of_transformers(tmp_path: Path, chat_template: str) -> None:
    template = load_chat_template(make_target(tmp_path / "t", chat_template=chat_template))
    assert template.marks_generation
    conversation = parse("multi-turn")
    [sequence] = tokenize_turns(conversation, template)
    whole = template.tokenizer.apply_chat_template(
        [{"role": message.role, "content": message.content} for message in conversation.messages],
        return_assistant_tokens_mask=True,
        return_dict=True,
    )
    length = len(sequence.input_ids)
    assert list(sequence.input_ids) == whole["input_ids"][:length]
    assert list(sequence.loss_mask) == whole["assistant_masks"][:length]
    assert not any(whole["assistant_masks"][length:])


def test_marks_narrow_what_the_prompt_leaves_open(tmp_path: Path) -> None:
    # The template does not let the target generate the language's name, which no prompt holds.
    narrow = _MARKED.replace("{% generation %}", "{{ 'de: ' }}{% generation %}")
    template = load_chat_template(make_target(tmp_path / "t", chat_template=narrow))
    conversation = Conversation("x:1", (Message("user", "One?"), Message("assistant", "Eins.")))
    [sequence] = tokenize_turns(conversation, template)
    assert marked(sequence, template).endswith("assistant\nde: «Eins.<|end|>»")


def test_a_template_without_marks_gives_the_same(tmp_path: Path) -> None:
    plain = load_chat_template(make_target(tmp_path / "plain", chat_template=CHAT_TEMPLATE))
    with_marks = load_chat_template(make_target(tmp_path / "marked", chat_template=_MARKED))
    conversation = parse("multi-turn")
    assert tokenize_turns(conversation, plain) == tokenize_turns(conversation, with_marks)
