"""The samples to train on and those to validate with."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import batched
from pathlib import Path
from typing import Final, Literal, NamedTuple

import torch

from eagle3.errors import InputError
from eagle3.preparation.split import is_validation
from eagle3.store.reader import StoreReader

# What chose the samples to validate with.
HeldOutBy = Literal["prepare", "--validation-share", "--validation-store"]
PREPARE: Final = "prepare"
SHARE: Final = "--validation-share"
STORE: Final = "--validation-store"

# Samples whose tokens are counted at a time.
_COUNTED_TOGETHER = 1024


@dataclass(frozen=True)
class SampleSet:
    """Samples of one store, numbered from 0 in the order of `ids`."""

    store: StoreReader
    ids: Sequence[str]

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of each."""
        return [self.store.entries[sample_id].length for sample_id in self.ids]

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the ids in order: what a data position refers to."""
        return hashlib.sha256("\n".join(self.ids).encode()).hexdigest()

    def token_frequencies(self, vocab_size: int) -> torch.Tensor:
        """How often each token of the target's vocabulary is supervised."""
        counts_V = torch.zeros(vocab_size, dtype=torch.int64)
        # Together: a row of the vocabulary a sample would cost more than its tokens do.
        for some in batched(self.ids, _COUNTED_TOGETHER, strict=False):
            entries = map(self.store.entries.__getitem__, some)
            tokens = [
                self.store.shard(e.shard).supervised_tokens(e.offset, e.length) for e in entries
            ]
            counts_V += torch.bincount(torch.cat(tokens), minlength=vocab_size)
        return counts_V


class Split(NamedTuple):
    """Samples to train on and to validate with, and what chose the latter; None: nothing does."""

    training: SampleSet
    validation: SampleSet
    held_out_by: HeldOutBy | None


def split_samples(
    store: StoreReader, validation_store: Path | None, seed: int, share: float
) -> Split:
    """Splits the samples of `store`, or those that it does not hold out from another store.

    What the store holds out is not trained on. Where it holds out none, `share` of its samples are,
    by `seed` and their ids alone. Both sets go by id, so that the order in which they were
    committed, or a merge of parts, changes nothing. Raises InputError where nothing is left to
    train on, and where the two stores do not belong together.
    """
    ids, held_out = sorted(store.ids), set(store.held_out)
    by: HeldOutBy = PREPARE
    if not held_out and validation_store is None:
        held_out = {sample_id for sample_id in ids if is_validation(seed, sample_id, share)}
        by = SHARE
    training = SampleSet(store, [sample_id for sample_id in ids if sample_id not in held_out])
    if not training.ids:
        raise InputError(_nothing_to_train_on(store))
    if validation_store is None:
        return Split(training, SampleSet(store, sorted(held_out)), by)
    other = read_validation(store, validation_store)
    validation = SampleSet(other.store, sorted(set(other.ids) - set(training.ids)))
    if not validation.ids:
        raise InputError(
            f"all samples of {validation_store} are trained on, too: give another "
            "--validation-store, or --validation-share in its place"
        )
    return Split(training, validation, STORE)


def follow_samples(store: StoreReader, validation_store: Path | None) -> Split:
    """The same for a store that grows: its samples are yet to come, and none of them validate."""
    training = SampleSet(store, ())
    if validation_store is None:
        return Split(training, training, held_out_by=None)
    return Split(training, read_validation(store, validation_store), STORE)


def _nothing_to_train_on(store: StoreReader) -> str:
    if not store.ids:
        return f"no samples to train on in {store.folder}; extract some first"
    return (
        f"all {len(store.ids):,} samples in {store.folder} are held out: prepare the data with a "
        "smaller --validation-share, or let extract go on where it has not ended"
    )


def read_validation(store: StoreReader, validation_store: Path) -> SampleSet:
    """All samples of another store. Raises InputError where it does not belong with `store`."""
    other = StoreReader(validation_store)
    _check_kinship(store, other)
    return SampleSet(other, sorted(other.ids))


def _check_kinship(store: StoreReader, other: StoreReader) -> None:
    for name in ("target", "capture_points", "hidden_size", "norm_applied"):
        ours, theirs = getattr(store.manifest, name), getattr(other.manifest, name)
        if ours != theirs:
            raise InputError(
                f"{name} of the states in {other.folder} differs from that of {store.folder}; "
                "extract both alike"
            )
