"""Writes one shard in place, row by row, and notes what is whole.

Several processes may write rows of one shard at once: each opens `shard_writer.path`, takes the
layout (which is plain data) and calls `write_rows` for its rows. The one that planned the shard
then accepts the samples, and commits.
"""

import os
from bisect import bisect_left
from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path

import torch

from eagle3.errors import StoreError
from eagle3.store.checksum import sample_checksum
from eagle3.store.durable import partial_path, start_sync, write_at
from eagle3.store.encoding import encode
from eagle3.store.index import IndexEntry
from eagle3.store.layout import journal_path
from eagle3.store.row_format import BFLOAT16
from eagle3.store.sample import Sample
from eagle3.store.shard import Shard
from eagle3.store.shard_layout import ShardLayout, plan_shard, read_layout


def write_rows(
    descriptor: int, layout: ShardLayout, row: int, hidden_states_TLH: torch.Tensor
) -> memoryview:
    """Writes bf16 [T, L, H] from row `row` of the open shard on, and returns its bytes there."""
    rows = _bytes_of(encode(hidden_states_TLH, layout.dtype))
    write_at(descriptor, rows, layout.row_start(row))
    return rows


class ShardWriter:
    """The shard `final` in work, at `path`: header and tables are written, rows are to come.

    A sample counts once it is accepted; its entry is then in the journal, with its checksum, so
    that it outlives this process. Those whose ids are in `held_out` are marked there. Methods
    raise OSError, and StoreError for a wrong call.
    """

    def __init__(
        self,
        final: Path,
        samples: Sequence[Sample],
        capture_points: tuple[int, ...],
        hidden_size: int,
        dtype: str = BFLOAT16,
        held_out: Collection[str] = (),
    ) -> None:
        self.final = final
        self._held_out = held_out
        self.path = partial_path(final)
        self.layout = plan_shard(
            (len(sample.input_ids) for sample in samples), capture_points, hidden_size, dtype
        )
        offsets = zip(samples, self.layout.sample_offsets, strict=False)
        self._offsets = {sample.id: offset for sample, offset in offsets}
        self.accepted: dict[str, IndexEntry] = {}
        self._set_aside: set[str] = set()
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        journal = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        self._journal = os.open(journal_path(final), journal, 0o666)
        write_at(self._descriptor, self.layout.header, 0)
        _write_tables(
            self._descriptor,
            self.layout,
            b"".join(sample.input_ids_bytes for sample in samples),
            b"".join(sample.loss_mask_bytes for sample in samples),
        )

    @property
    def unfinished(self) -> tuple[str, ...]:
        """The ids of the samples that are neither accepted nor set aside."""
        done = self.accepted.keys() | self._set_aside
        return tuple(sample_id for sample_id in self._offsets if sample_id not in done)

    def awaits(self, sample: Sample) -> bool:
        """Whether `sample` is planned here, and neither accepted nor set aside."""
        done = sample.id in self.accepted or sample.id in self._set_aside
        return sample.id in self._offsets and not done

    def offset(self, sample: Sample) -> int:
        """The first row of `sample`, which is still to be accepted."""
        if not self.awaits(sample):
            raise StoreError(f"sample {sample.id} is not awaited in {self.final.name}")
        return self._offsets[sample.id]

    def write(self, sample: Sample, hidden_states_TLH: torch.Tensor) -> None:
        """Writes the rows of `sample`, bf16 [T, L, H], and accepts it."""
        layout = self.layout
        shape = (len(sample.input_ids), len(layout.capture_points), layout.hidden_size)
        if tuple(hidden_states_TLH.shape) != shape or hidden_states_TLH.dtype != torch.bfloat16:
            raise StoreError(
                f"sample {sample.id}: the states are {list(hidden_states_TLH.shape)} "
                f"{hidden_states_TLH.dtype}, planned are {list(shape)} torch.bfloat16"
            )
        rows = write_rows(self._descriptor, layout, self.offset(sample), hidden_states_TLH)
        self._accept(sample, rows)

    def written_states(self, sample: Sample) -> torch.Tensor:
        """bf16 [T, L, H] of `sample`, as other processes have written it."""
        return self._mapped.hidden_states(self.offset(sample), len(sample.input_ids))

    def accept(self, sample: Sample) -> None:
        """Takes `sample` as whole: other processes have written each of its rows."""
        offset = self.offset(sample)
        rows = self._mapped.rows(offset, len(sample.input_ids))
        self._accept(sample, rows)
        # Left to the kernel, the disk would stand idle until the shard is synced.
        start_sync(self._descriptor, self.layout.row_start(offset), len(rows))
        self._mapped.let_go(offset, len(sample.input_ids))

    def set_aside(self, sample: Sample) -> None:
        """Leaves the rows of `sample` out of the store; they stay in the shard without a mask."""
        self.offset(sample)
        self._set_aside.add(sample.id)

    def finish(self) -> list[IndexEntry]:
        """Makes the file, still under its first name, last; the entries of what it holds."""
        entries = list(self.accepted.values())
        if entries:
            cut_shard(self._descriptor, self.layout, entries)
            os.fsync(self._descriptor)
        return entries

    def close(self) -> None:
        os.close(self._descriptor)
        os.close(self._journal)

    @cached_property
    def _mapped(self) -> Shard:
        return Shard(self.path)

    def _accept(self, sample: Sample, rows: memoryview) -> None:
        entry = IndexEntry(
            id=sample.id,
            shard=self.final.name,
            offset=self.offset(sample),
            length=len(sample.input_ids),
            checksum=sample_checksum(sample, rows),
            held_out=sample.id in self._held_out,
        )
        os.write(self._journal, entry.to_line())
        self.accepted[sample.id] = entry


def cut_shard(descriptor: int, layout: ShardLayout, entries: Sequence[IndexEntry]) -> None:
    """Makes the open shard one of the samples of `entries` alone.

    It ends with the last of them. Rows of others before that one lose their loss mask, so that
    a program that reads the shard without the index does not train on them.
    """
    end = max(entry.offset + entry.length for entry in entries)
    planned = _loss_mask(descriptor, layout)
    loss_mask = bytearray(end)
    for entry in entries:
        rows = slice(entry.offset, entry.offset + entry.length)
        loss_mask[rows] = planned[rows]
    cut = layout.first_samples(bisect_left(layout.sample_offsets, end))
    if cut == layout and loss_mask == planned:
        return
    input_ids = os.pread(descriptor, 8 * end, layout.input_ids_start)
    _write_tables(descriptor, cut, input_ids, loss_mask)
    write_at(descriptor, cut.header, 0)
    os.truncate(descriptor, cut.size)


def cut_partial(partial: Path, entries: Sequence[IndexEntry]) -> None:
    """The same for a shard that a killed run left, and makes it last."""
    descriptor = os.open(partial, os.O_RDWR)
    try:
        cut_shard(descriptor, read_layout(partial, descriptor), entries)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _loss_mask(descriptor: int, layout: ShardLayout) -> bytes:
    return os.pread(descriptor, layout.tokens, layout.loss_mask_start)


def _write_tables(
    descriptor: int, layout: ShardLayout, input_ids: bytes, loss_mask: bytes | bytearray
) -> None:
    tables = input_ids + layout.sample_offsets_bytes + loss_mask
    write_at(descriptor, tables, layout.input_ids_start)


def _bytes_of(hidden_states_TLH: torch.Tensor) -> memoryview:
    return memoryview(hidden_states_TLH.contiguous().flatten().view(torch.uint8).numpy())
