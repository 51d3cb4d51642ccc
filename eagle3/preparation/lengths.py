"""What becomes of conversations that are longer than the target will be run with."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from eagle3.chat.conversation import Conversation, Message
from eagle3.chat.token_sequence import TokenSequence
from eagle3.preparation.request import LongPolicy

Tokenize = Callable[[Conversation], list[TokenSequence]]


@dataclass(frozen=True)
class Fitted:
    """Samples that fit, how many were cut, and how many were too long and left out."""

    samples: list[TokenSequence]
    cut: int = 0
    dropped: int = 0


def fit_conversation(
    conversation: Conversation, tokenize: Tokenize, policy: LongPolicy, length: int
) -> Fitted:
    """The samples of `conversation`, each of at most `length` tokens.

    `split` begins a new conversation, with the system prompt, at the question that no longer fits;
    so each part reads as something the target could have been asked.
    """
    sequences = tokenize(conversation)
    if all(len(sequence.input_ids) <= length for sequence in sequences):
        return Fitted(sequences)
    if policy != "split":
        return _fit_each(sequences, policy, length)
    system, rounds = _rounds(conversation.messages)

    def fit(part: Sequence[list[Message]]) -> list[TokenSequence] | None:
        messages = (*system, *(message for one in part for message in one))
        found = tokenize(replace(conversation, messages=messages))
        return None if any(len(sequence.input_ids) > length for sequence in found) else found

    samples: list[TokenSequence] = []
    parts = dropped = 0
    while rounds:
        count, fitting = _most(rounds, fit)
        samples += fitting
        parts += count > 0
        dropped += count == 0
        rounds = rounds[max(count, 1) :]
    return Fitted(samples, cut=int(parts > 0), dropped=dropped)


def _most(
    rounds: Sequence[list[Message]],
    fit: Callable[[Sequence[list[Message]]], list[TokenSequence] | None],
) -> tuple[int, list[TokenSequence]]:
    """How many of the first `rounds` fit, and the samples of them.

    Asked from below: to tokenize all that is left of a conversation of hundreds of turns, again
    and again, would take minutes.
    """
    fitting: dict[int, list[TokenSequence]] = {0: []}

    def fits(count: int) -> bool:
        found = fit(rounds[:count])
        if found is not None:
            fitting[count] = found
        return found is not None

    step = 1
    while step <= len(rounds) and fits(step):
        step *= 2
    untried = range(step // 2 + 1, min(step, len(rounds) + 1))
    most = step // 2 + bisect_left(untried, True, key=lambda count: not fits(count))
    return most, fitting[most]


def fit_tokens(sequence: TokenSequence, policy: LongPolicy, length: int) -> Fitted:
    """The samples of ready token ids; `split` cuts where a run of supervised tokens ends."""
    if len(sequence.input_ids) <= length:
        return Fitted([sequence])
    if policy != "split":
        return _fit_each([sequence], policy, length)
    mask = sequence.loss_mask
    ends = [
        position + 1
        for position in range(len(mask))
        if mask[position] and not (position + 1 < len(mask) and mask[position + 1])
    ]
    samples: list[TokenSequence] = []
    start = dropped = 0
    while ends:
        fitting = [end for end in ends if end - start <= length]
        end = fitting[-1] if fitting else ends[0]
        part = slice(start, end)
        if fitting:
            samples.append(
                TokenSequence(sequence.place, sequence.input_ids[part], sequence.loss_mask[part])
            )
        else:
            dropped += 1
        ends = [later for later in ends if later > end]
        start = end
    return Fitted(samples, cut=int(bool(samples)), dropped=dropped)


def _fit_each(sequences: list[TokenSequence], policy: LongPolicy, length: int) -> Fitted:
    samples: list[TokenSequence] = []
    cut = dropped = 0
    for sequence in sequences:
        if len(sequence.input_ids) <= length:
            samples.append(sequence)
        elif policy == "truncate" and any(sequence.loss_mask[:length]):
            ids, mask = sequence.input_ids[:length], sequence.loss_mask[:length]
            samples.append(TokenSequence(sequence.place, ids, mask))
            cut += 1
        else:
            dropped += 1
    return Fitted(samples, cut, dropped)


def _rounds(
    messages: tuple[Message, ...],
) -> tuple[tuple[Message, ...], list[list[Message]]]:
    """The system prompt, and the rest in parts that each begin with a user's turn."""
    system = tuple(message for message in messages[:1] if message.role == "system")
    rounds: list[list[Message]] = []
    for message in messages[len(system) :]:
        # Two questions in a row are one round: the first has no answer.
        opens = message.role == "user" and (not rounds or rounds[-1][-1].role != "user")
        if opens:
            rounds.append([])
        rounds[-1].append(message)
    answered = [part for part in rounds if any(message.role == "assistant" for message in part)]
    return system, answered
