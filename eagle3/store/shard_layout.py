"""The plan of a shard: every byte's place, known before the first row exists."""

import json
import os
import struct
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from eagle3.errors import StoreError
from eagle3.store.layout import (
    HIDDEN_STATES,
    HIDDEN_STATES_FP8,
    INPUT_IDS,
    LOSS_MASK,
    SAMPLE_OFFSETS,
)
from eagle3.store.row_format import BFLOAT16, FLOAT8, width

# Rows begin on a page, so that they can be mapped and written directly.
_PAGE_BYTES = 4096
_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 100_000_000
_INT64_BYTES = 8


@dataclass(frozen=True)
class ShardLayout:
    """A safetensors file of `sample_offsets[-1]` = T rows [L, H], one sample after the other.

    `dtype` says how they are encoded (see encoding.py).

    Sample i has the rows from `sample_offsets[i]` to `sample_offsets[i + 1]`. After the rows,
    which are nearly all of the file, come the tables: token ids, sample offsets, loss mask. So
    a shard that ends early is cut without moving a row. `header_bytes` is where the rows begin.
    """

    sample_offsets: tuple[int, ...]
    capture_points: tuple[int, ...]
    hidden_size: int
    header_bytes: int
    dtype: str = BFLOAT16

    @property
    def tokens(self) -> int:
        return self.sample_offsets[-1]

    @property
    def row_bytes(self) -> int:
        return len(self.capture_points) * width(self.dtype, self.hidden_size)

    @property
    def input_ids_start(self) -> int:
        return self.row_start(self.tokens)

    @property
    def sample_offsets_start(self) -> int:
        return self.input_ids_start + self.tokens * _INT64_BYTES

    @property
    def loss_mask_start(self) -> int:
        return self.sample_offsets_start + len(self.sample_offsets) * _INT64_BYTES

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.loss_mask_start + self.tokens

    def row_start(self, row: int) -> int:
        """The byte at which a row begins; rows may be written in any order, by any process."""
        return self.header_bytes + row * self.row_bytes

    @cached_property
    def header(self) -> bytes:
        """The first `header_bytes` bytes of the file."""
        text = _header_text(self)
        padded = text.ljust(self.header_bytes - _LENGTH_BYTES)
        return struct.pack("<Q", len(padded)) + padded

    @property
    def sample_offsets_bytes(self) -> bytes:
        return array("q", self.sample_offsets).tobytes()

    def first_samples(self, count: int) -> "ShardLayout":
        """The layout of the first `count` samples alone, whose rows lie where they lay."""
        return replace(self, sample_offsets=self.sample_offsets[: count + 1])


def plan_shard(
    lengths: Iterable[int],
    capture_points: tuple[int, ...],
    hidden_size: int,
    dtype: str = BFLOAT16,
) -> ShardLayout:
    """The layout of samples of so many tokens each, in this order.

    Raises StoreError where the rows would leave the tables after them misaligned, which plain
    safetensors could not read.
    """
    if len(capture_points) * width(dtype, hidden_size) % _INT64_BYTES or hidden_size % 2:
        raise StoreError(
            f"rows of {len(capture_points)} x {hidden_size} values are no multiple of 8 bytes; "
            "take another number of --layers"
        )
    offsets = tuple(accumulate(lengths, initial=0))
    layout = ShardLayout(offsets, capture_points, hidden_size, 0, dtype)
    pages = -(-(_LENGTH_BYTES + len(_header_text(layout))) // _PAGE_BYTES)
    return replace(layout, header_bytes=pages * _PAGE_BYTES)


def read_layout(path: Path, descriptor: int) -> ShardLayout:
    """The layout of the open shard `path`.

    Raises StoreError unless header, tables and size of the file are exactly those of a layout.
    """
    size = os.fstat(descriptor).st_size
    try:
        (length,) = struct.unpack("<Q", os.pread(descriptor, _LENGTH_BYTES, 0))
        if not 0 < length <= min(size, _MAX_HEADER_BYTES):
            raise ValueError(f"a header of {length:,} bytes")
        header = os.pread(descriptor, _LENGTH_BYTES + length, 0)
        fields = json.loads(header[_LENGTH_BYTES:])
        points = tuple(map(int, fields["__metadata__"]["capture_points"].split(",")))
        dtype = FLOAT8 if HIDDEN_STATES_FP8 in fields else BFLOAT16
        values = fields[HIDDEN_STATES_FP8 if dtype == FLOAT8 else HIDDEN_STATES]["shape"][2]
        hidden_size = values - width(dtype, 0)
        begin, end = fields[SAMPLE_OFFSETS]["data_offsets"]
        offsets = array("q", os.pread(descriptor, min(end - begin, size), len(header) + begin))
        layout = ShardLayout(tuple(offsets), points, hidden_size, len(header), dtype)
        whole = layout.header == header
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, IndexError, struct.error) as error:
        raise _damaged(path, f"its header is no shard's, {error!r}") from error
    if not whole:
        raise _damaged(path, "its header does not fit its tables")
    if size != layout.size:
        raise _damaged(path, f"it has {size:,} bytes, {layout.size:,} were written")
    return layout


def _damaged(path: Path, how: str) -> StoreError:
    return StoreError(f"{path} is damaged: {how}; remove it and run extract again")


def _header_text(layout: ShardLayout) -> bytes:
    tokens, points = layout.tokens, len(layout.capture_points)
    samples = len(layout.sample_offsets)
    if layout.dtype == BFLOAT16:
        name, kind, values = HIDDEN_STATES, "BF16", layout.hidden_size
    else:
        name, kind, values = HIDDEN_STATES_FP8, "U8", width(layout.dtype, layout.hidden_size)
    tensors = (
        (name, kind, [tokens, points, values], layout.row_bytes * tokens),
        (INPUT_IDS, "I64", [tokens], tokens * _INT64_BYTES),
        (SAMPLE_OFFSETS, "I64", [samples], samples * _INT64_BYTES),
        (LOSS_MASK, "U8", [tokens], tokens),
    )
    fields: dict[str, object] = {
        "__metadata__": {
            "format": "pt",
            "capture_points": ",".join(map(str, layout.capture_points)),
        }
    }
    begin = 0
    for name, dtype, shape, size in tensors:
        fields[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + size]}
        begin += size
    return json.dumps(fields, separators=(",", ":")).encode()
