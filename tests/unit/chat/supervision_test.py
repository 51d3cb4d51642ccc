"""The loss mask covers what the target would have generated, and nothing else."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from eagle3.chat.chat_template import ChatTemplate, load_chat_template
from eagle3.chat.conversation import Conversation, Message
from eagle3.chat.supervision import tokenize_conversation, tokenize_turns
from eagle3.chat.token_sequence import TokenSequence
from eagle3.errors import InputError
from tests.unit.tiny_target import CHAT_TEMPLATE, make_target


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_target(tmp_path / "target")


@pytest.fixture
def template(model: Path) -> ChatTemplate:
    return load_chat_template(model)


def conversation(*turns: str) -> Conversation:
    """Turns written as `u:...`, `a:...` or `s:...`."""
    roles = {"u": "user", "a": "assistant", "s": "system"}
    return Conversation("data:1", tuple(Message(roles[turn[0]], turn[2:]) for turn in turns))


def supervised_runs(model: Path, sequence: TokenSequence) -> list[str]:
    """The text of each unbroken run of supervised tokens."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    runs: list[list[int]] = [[]]
    for token, supervised in zip(sequence.input_ids, sequence.loss_mask, strict=True):
        if supervised:
            runs[-1].append(token)
        elif runs[-1]:
            runs.append([])
    return [tokenizer.decode(run) for run in runs if run]


def test_answers_with_their_end_of_turn_are_supervised(model: Path, template: ChatTemplate) -> None:
    sequence = tokenize_conversation(
        conversation("s:Be brief.", "u:One?", "a:Eins.", "u:Two?", "a:Zwei,\n\ndenn 1 < 2."),
        template,
    )
    assert supervised_runs(model, sequence) == ["Eins.<|end|>", "Zwei,\n\ndenn 1 < 2.<|end|>"]


def test_ids_are_those_of_the_whole_conversation(model: Path, template: ChatTemplate) -> None:
    sequence = tokenize_conversation(conversation("u:Ünï 🙂", "a:ありがとう"), template)
    whole = (
        "<|begin|>user\nÜnï 🙂<|end|>\n"  # the template, written out
        "<|begin|>assistant\nありがとう<|end|>"
    )
    assert AutoTokenizer.from_pretrained(model).decode(sequence.input_ids) == whole


def test_a_quoted_header_is_not_an_answer(model: Path, template: ChatTemplate) -> None:
    sequence = tokenize_conversation(
        conversation("u:What is assistant\nfor?", "a:It begins an answer."), template
    )
    assert supervised_runs(model, sequence) == ["It begins an answer.<|end|>"]


def test_what_follows_the_last_answer_is_left_out(model: Path, template: ChatTemplate) -> None:
    sequence = tokenize_conversation(conversation("u:One?", "a:Eins.", "u:Two?"), template)
    assert supervised_runs(model, sequence) == ["Eins.<|end|>"]
    assert sequence.loss_mask[-1] == 1


def test_an_answer_that_would_merge_with_its_header_does_not(
    model: Path, template: ChatTemplate
) -> None:
    # In one go the tokenizer makes one token of the header's newline and the answer's first; the
    # target was given the header alone.
    sequence = tokenize_conversation(conversation("u:One?", "a:\n\nEins."), template)
    assert supervised_runs(model, sequence) == ["\n\nEins.<|end|>"]


def test_history_that_merges_makes_a_sample_of_its_own(model: Path, template: ChatTemplate) -> None:
    merging = conversation("u:One?", "a:\n\nEins.", "u:Two?", "a:Zwei.")
    first, second = tokenize_turns(merging, template)
    assert supervised_runs(model, first) == ["\n\nEins.<|end|>"]
    assert supervised_runs(model, second) == ["Zwei.<|end|>"]
    with pytest.raises(InputError, match="tokens of earlier turns change"):
        tokenize_conversation(merging, template)


def test_an_end_of_turn_token_inside_an_answer_is_refused(template: ChatTemplate) -> None:
    with pytest.raises(InputError, match="turn 2 holds 2 end-of-turn tokens"):
        tokenize_conversation(conversation("u:One?", "a:Eins<|end|>."), template)


def test_a_template_that_rewrites_history_is_refused(tmp_path: Path) -> None:
    last_only = CHAT_TEMPLATE.replace(
        "message['content']", "(message['content'] if loop.last else '...')"
    )
    template = load_chat_template(make_target(tmp_path / "target", chat_template=last_only))
    with pytest.raises(InputError, match="changes this turn or the ones before"):
        tokenize_conversation(conversation("u:One?", "a:Eins."), template)


def test_a_template_without_end_of_turn_is_refused(tmp_path: Path) -> None:
    without = CHAT_TEMPLATE.replace("<|end|>", "")
    template = load_chat_template(make_target(tmp_path / "target", chat_template=without))
    with pytest.raises(InputError, match="holds 0 end-of-turn tokens"):
        tokenize_conversation(conversation("u:One?", "a:Eins."), template)


@pytest.mark.parametrize("value", ['"<|end|>"', "[[1]]", "[1, null]"])
def test_an_end_of_turn_that_is_no_token_id_is_refused(tmp_path: Path, value: str) -> None:
    folder = make_target(tmp_path / "target")
    (folder / "generation_config.json").write_text(f'{{"eos_token_id": {value}}}')
    with pytest.raises(InputError, match="`eos_token_id` that is no token id"):
        load_chat_template(folder)


def test_a_full_mask_is_refused(tmp_path: Path) -> None:
    answers_only = (
        "{% for message in messages if message['role'] == 'assistant' %}"
        "{{ message['content'] + '<|end|>' }}{% endfor %}"
    )
    template = load_chat_template(make_target(tmp_path / "target", chat_template=answers_only))
    with pytest.raises(InputError, match="all of its tokens are supervised"):
        tokenize_conversation(conversation("u:One?", "a:Eins."), template)


def test_a_template_that_fails_names_the_line(tmp_path: Path) -> None:
    failing = "{{ raise_exception('no system prompts, please') }}"
    template = load_chat_template(make_target(tmp_path / "target", chat_template=failing))
    with pytest.raises(InputError, match=r"^data:1: .*no system prompts, please"):
        tokenize_conversation(conversation("u:One?", "a:Eins."), template)


def test_a_missing_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no chat template"):
        load_chat_template(make_target(tmp_path / "target", chat_template=None))


def test_a_missing_tokenizer_is_refused(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    (model / "tokenizer_config.json").unlink()
    with pytest.raises(InputError, match=r"no usable tokenizer in [^\n]*$"):
        load_chat_template(model)
