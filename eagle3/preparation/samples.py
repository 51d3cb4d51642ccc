"""Samples as a table, in the form in which they go from process to process and to disk."""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

import numpy as np
import pyarrow as pa

from eagle3.chat.pattern import Pattern
from eagle3.chat.token_sequence import TokenSequence
from eagle3.store.sample import sample_id

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("conversation", pa.string()),
        ("input_ids", pa.list_(pa.int32())),
        ("loss_mask", pa.list_(pa.int8())),
    ]
)


class Samples:
    """Takes samples row by row; those of one row are one conversation.

    The tokens of all lie in one list, so that each is copied once.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._mask = bytearray()
        self._ends = [0]
        self._samples_of_rows: list[int] = []

    def add_row(self, samples: Sequence[TokenSequence]) -> None:
        for sample in samples:
            self._ids += sample.input_ids
            self._mask += bytes(sample.loss_mask)
            self._ends.append(len(self._ids))
        self._samples_of_rows.append(len(samples))

    def join(self, pattern: Pattern, encoded: Iterator[list[int]], longest: int) -> bool:
        """Adds the one sample of a row; False, and none, where `Pattern.join` cannot tell it.

        False, too, where it has more than `longest` tokens.
        """
        begin = self._ends[-1]
        if not pattern.join(encoded, self._ids, self._mask):
            return False
        end = len(self._ids)
        if end - begin > longest:
            del self._ids[begin:], self._mask[begin:]
            return False
        self._ends.append(end)
        self._samples_of_rows.append(1)
        return True

    def table(self) -> pa.Table:
        """All of them, in order, in SCHEMA; it takes over the memory, so that none can follow."""
        # One array of all: to turn tokens into numbers of eight bytes one by one is slow.
        tokens = array("q", self._ids)
        tokens_view, mask_view = memoryview(tokens), memoryview(self._mask)
        ids = [
            sample_id(tokens_view[begin:end], mask_view[begin:end])
            for begin, end in pairwise(self._ends)
        ]
        offsets = pa.array(self._ends, pa.int32())
        token_values = pa.array(np.frombuffer(tokens, np.int64).astype(np.int32))
        mask_values = pa.array(np.frombuffer(self._mask, np.int8))
        columns = [
            pa.array(ids, pa.string()),
            pa.array(self._conversations(ids), pa.string()),
            pa.ListArray.from_arrays(offsets, token_values),
            pa.ListArray.from_arrays(offsets, mask_values),
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMA)

    def _conversations(self, ids: Sequence[str]) -> list[str]:
        conversations: list[str] = []
        left = iter(ids)
        for count in self._samples_of_rows:
            joined = "\n".join(islice(left, count))
            conversations += [hashlib.sha256(joined.encode()).hexdigest()[:32]] * count
        return conversations
