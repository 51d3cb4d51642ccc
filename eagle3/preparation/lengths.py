"""What becomes of conversations that are longer than the target will be run with."""

from collections.abc import Callable
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
    samples: list[TokenSequence] = []
    parts = dropped = start = 0
    while start < len(rounds):
        for end in range(len(rounds), start, -1):
            messages = (*system, *(message for part in rounds[start:end] for message in part))
            fitting = tokenize(replace(conversation, messages=messages))
            if all(len(sequence.input_ids) <= length for sequence in fitting):
                samples += fitting
                parts += 1
                break
        else:
            end = start + 1
            dropped += 1
        start = end
    return Fitted(samples, cut=int(parts > 0), dropped=dropped)


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
