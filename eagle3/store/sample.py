"""The sample: one token sequence with its loss mask, named by what it holds."""

import hashlib
from array import array
from collections.abc import Buffer, Iterable
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Sample:
    """`input_ids` and `loss_mask` (0 or 1 a token) are [T] each."""

    input_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.input_ids) != len(self.loss_mask) or not self.input_ids:
            raise ValueError("a sample needs at least one token, and one mask value a token")

    @cached_property
    def id(self) -> str:
        """128 bits of SHA-256 over tokens and mask, as 32 hexadecimal digits.

        The id depends on the content alone, so that the order of the data, the batch and the
        machine make no difference, and a sample that stands twice in the data is one sample.
        """
        return sample_id(self.input_ids_bytes, self.loss_mask_bytes)

    @property
    def input_ids_bytes(self) -> bytes:
        """Eight bytes a token, little-endian."""
        return array("q", self.input_ids).tobytes()

    @property
    def loss_mask_bytes(self) -> bytes:
        """One byte a token."""
        return bytes(self.loss_mask)


def sample_id(input_ids_bytes: Buffer, loss_mask_bytes: Buffer) -> str:
    """`Sample.id`, of what `Sample.input_ids_bytes` and `Sample.loss_mask_bytes` give."""
    content = hashlib.sha256(b"eagle3 sample 1\n")
    content.update(input_ids_bytes)
    content.update(loss_mask_bytes)
    return content.hexdigest()[:32]


def dataset_digest(samples: Iterable[Sample]) -> str:
    """SHA-256 over the ids of `samples` in sorted order: the same data, whatever its order."""
    return ids_digest(sample.id for sample in samples)


def ids_digest(ids: Iterable[str]) -> str:
    """`dataset_digest` of the samples with these ids."""
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()
