"""Long conversations are dropped, cut, or split where a turn ends."""

from itertools import batched

import pytest

from eagle3.chat.conversation import Conversation, Message
from eagle3.chat.token_sequence import TokenSequence
from eagle3.preparation.lengths import fit_conversation, fit_tokens
from eagle3.preparation.request import LongPolicy

_MARKS = {"system": 9, "user": 1, "assistant": 2}


def tokenize(conversation: Conversation) -> list[TokenSequence]:
    """One token a character, with the role's number; an assistant's are supervised."""
    ids: list[int] = []
    mask: list[int] = []
    for message in conversation.messages:
        ids += [_MARKS[message.role]] * len(message.content)
        mask += [int(message.role == "assistant")] * len(message.content)
    return [TokenSequence(conversation.place, tuple(ids), tuple(mask))]


def conversation(*lengths: int, system: int = 0) -> Conversation:
    roles = ["user", "assistant"] * len(lengths)
    turns = [Message(role, "x" * length) for role, length in zip(roles, lengths, strict=False)]
    head = [Message("system", "x" * system)] if system else []
    return Conversation("d:1", (*head, *turns))


def ids(samples: list[TokenSequence]) -> list[str]:
    return ["".join(map(str, sample.input_ids)) for sample in samples]


@pytest.mark.parametrize("policy", ["drop", "split", "truncate"])
def test_what_fits_is_left_alone(policy: LongPolicy) -> None:
    fitted = fit_conversation(conversation(1, 2), tokenize, policy, 3)
    assert (ids(fitted.samples), fitted.cut, fitted.dropped) == (["122"], 0, 0)


def test_drop_leaves_it_out() -> None:
    fitted = fit_conversation(conversation(1, 3), tokenize, "drop", 3)
    assert (fitted.samples, fitted.cut, fitted.dropped) == ([], 0, 1)


def test_truncate_cuts_tokens_and_mask() -> None:
    fitted = fit_conversation(conversation(1, 3), tokenize, "truncate", 3)
    assert (ids(fitted.samples), fitted.cut, fitted.dropped) == (["122"], 1, 0)
    assert fitted.samples[0].loss_mask == (0, 1, 1)


def test_truncate_drops_what_would_have_no_supervised_token() -> None:
    fitted = fit_conversation(conversation(3, 1), tokenize, "truncate", 3)
    assert (fitted.samples, fitted.cut, fitted.dropped) == ([], 0, 1)


def test_split_begins_anew_with_the_system_prompt() -> None:
    long = conversation(1, 1, 1, 2, 2, 1, system=1)
    fitted = fit_conversation(long, tokenize, "split", 6)
    assert ids(fitted.samples) == ["912122", "9112"]
    assert (fitted.cut, fitted.dropped) == (1, 0)


@pytest.mark.parametrize("length", [5, 7, 30, 64, 65, 300, 1000])
def test_split_takes_as_many_rounds_as_fit(length: int) -> None:
    lengths = [1 + number % 3 for number in range(400)]
    expected = [""]
    for ask, tell in batched(lengths, 2, strict=True):
        if len(expected[-1]) + ask + tell > length:
            expected.append("")
        expected[-1] += "1" * ask + "2" * tell
    fitted = fit_conversation(conversation(*lengths), tokenize, "split", length)
    assert ids(fitted.samples) == expected
    assert fitted.dropped == 0


def test_split_of_many_rounds_tokenizes_little() -> None:
    tokens = 0

    def count(conversation: Conversation) -> list[TokenSequence]:
        nonlocal tokens
        [sequence] = tokenize(conversation)
        tokens += len(sequence.input_ids)
        return [sequence]

    fit_conversation(conversation(*[1] * 2000), count, "split", 20)
    # All of it once, and of each part a few times what fits.
    assert tokens < 2000 + 100 * 20 * 8


def test_split_drops_only_the_round_that_never_fits() -> None:
    fitted = fit_conversation(conversation(1, 1, 1, 9, 1, 2), tokenize, "split", 4)
    assert ids(fitted.samples) == ["12", "122"]
    assert (fitted.cut, fitted.dropped) == (1, 1)


def test_ready_tokens_are_split_where_an_answer_ends() -> None:
    tokens = TokenSequence("d:1", (1, 2, 2, 3, 4, 5, 6, 6, 6, 6), (0, 1, 1, 0, 1, 0, 1, 1, 1, 1))
    fitted = fit_tokens(tokens, "split", 4)
    assert ids(fitted.samples) == ["122", "34"]
    assert (fitted.cut, fitted.dropped) == (1, 1)
    assert ids(fit_tokens(tokens, "split", 5).samples) == ["12234", "56666"]
    assert ids(fit_tokens(tokens, "truncate", 4).samples) == ["1223"]
    assert fit_tokens(tokens, "drop", 4).dropped == 1
