"""The samples of the data: checked against the target, cut to length, each only once."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from eagle3.chat.data import read_token_sequences
from eagle3.chat.token_sequence import TokenSequence
from eagle3.errors import InputError
from eagle3.preparation.dataset import read_dataset, read_description_for
from eagle3.store.sample import Sample


@dataclass(frozen=True)
class PlannedSamples:
    """Samples in the order of the data.

    `places` tells where in the data each id first stood; `duplicates` counts the lines that
    repeat an earlier sample and `truncated` those that were cut. `held_out` are the ids of those
    that must not be trained on, which only a preparation says.
    """

    samples: tuple[Sample, ...]
    places: dict[str, str]
    duplicates: int
    truncated: int
    held_out: frozenset[str]


def read_samples(
    data: Path,
    model: Path,
    *,
    limit: int | None,
    vocab_size: int,
    max_model_len: int,
    truncate: bool,
    trust_remote_code: bool = False,
) -> PlannedSamples:
    """Reads at most `limit` samples of `data`, each of at most `max_model_len` tokens.

    `data` is a JSONL file or a folder that a preparation wrote. Raises InputError for a line that
    cannot become a sample, for a folder that was prepared for another tokenizer, for a token id
    outside the vocabulary and, without `truncate`, for samples that are too long.
    """
    samples: list[Sample] = []
    places: dict[str, str] = {}
    held_out: set[str] = set()
    duplicates = too_long = 0
    longest: TokenSequence | None = None
    # Each token once: numbers of their own would take most of the memory of a large dataset.
    tokens = tuple(range(vocab_size))
    for sequence in _read_sequences(data, model, limit, trust_remote_code):
        _check_vocabulary(sequence, vocab_size)
        if len(sequence.input_ids) > max_model_len:
            too_long += 1
            if longest is None or len(sequence.input_ids) > len(longest.input_ids):
                longest = sequence
            if not truncate:
                continue
            sequence = _truncate(sequence, max_model_len)
        input_ids = tuple(tokens[token] for token in sequence.input_ids)
        sample = Sample(input_ids, sequence.loss_mask)
        if sample.id in places:
            duplicates += 1
        else:
            places[sample.id] = sequence.place
            samples.append(sample)
        if sequence.held_out:
            # Also one that, cut to length, repeats a sample to train on.
            held_out.add(sample.id)
    if longest is not None and not truncate:
        raise InputError(
            f"{longest.place}: {len(longest.input_ids):,} tokens, but --max-model-len is "
            f"{max_model_len:,} (samples too long: {too_long:,}, of which this is the "
            "longest); raise it, or cut them with --truncate"
        )
    if not samples:
        raise InputError(f"no samples in {data}; give a JSONL file with --data")
    return PlannedSamples(tuple(samples), places, duplicates, too_long, frozenset(held_out))


def _read_sequences(
    data: Path, model: Path, limit: int | None, trust_remote_code: bool
) -> Iterator[TokenSequence]:
    if not data.is_dir():
        return read_token_sequences(data, model, limit, trust_remote_code=trust_remote_code)
    read_description_for(model, data)
    return read_dataset(data, limit)


def _check_vocabulary(sequence: TokenSequence, vocab_size: int) -> None:
    for position, token in enumerate(sequence.input_ids):
        if not 0 <= token < vocab_size:
            raise InputError(
                f"{sequence.place}: token id {token} at position {position} is not in the "
                f"target's vocabulary (0 to {vocab_size - 1}); was it made by another tokenizer?"
            )


def _truncate(sequence: TokenSequence, length: int) -> TokenSequence:
    loss_mask = sequence.loss_mask[:length]
    if not any(loss_mask):
        raise InputError(
            f"{sequence.place}: cut to {length:,} tokens, no supervised token is left; "
            "raise --max-model-len or remove the line"
        )
    return replace(sequence, input_ids=sequence.input_ids[:length], loss_mask=loss_mask)
