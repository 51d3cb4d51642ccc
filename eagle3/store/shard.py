"""A shard on disk, mapped into memory: nothing is read before it is used."""

import ctypes
import mmap
import os
from bisect import bisect_left
from pathlib import Path

import torch

from eagle3.errors import StoreError
from eagle3.store.encoding import decode
from eagle3.store.sample import Sample
from eagle3.store.shard_layout import read_layout

_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Shard:
    """The shard `path`, whose size and header are checked here and whose rows are not.

    Raises StoreError where it is missing, or is not a whole shard.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from error
        try:
            self.layout = read_layout(path, descriptor)
            # A private copy on write: tensors on the mapping must not be read-only for torch.
            self._bytes = mmap.mmap(descriptor, self.layout.size, access=mmap.ACCESS_COPY)
        finally:
            os.close(descriptor)

    @property
    def content(self) -> memoryview:
        """All bytes of the file, without a copy."""
        return memoryview(self._bytes)

    def read_ahead(self) -> None:
        """Has the system fetch all of the shard now, in one sequential read."""
        self._bytes.madvise(mmap.MADV_WILLNEED)

    def holds(self, offset: int, length: int) -> bool:
        """Whether the rows are those of one sample, from its first to its last."""
        offsets = self.layout.sample_offsets
        place = bisect_left(offsets, offset)
        return offsets[place : place + 2] == (offset, offset + length)

    def rows(self, offset: int, length: int) -> memoryview:
        """The bytes of the rows, without a copy."""
        start = self.layout.row_start(offset)
        return memoryview(self._bytes)[start : start + length * self.layout.row_bytes]

    def hidden_states(self, offset: int, length: int) -> torch.Tensor:
        """bf16 [length, L, H]; what is written to it does not reach the disk.

        Nothing is copied, unless the rows are encoded.
        """
        return decode(self.encoded_states(offset, length), self.layout.dtype)

    def encoded_states(self, offset: int, length: int) -> torch.Tensor:
        """The rows as they lie there (see encoding.py), [length, L, bytes / 2]; without a copy."""
        layout = self.layout
        rows = torch.frombuffer(
            self._bytes,
            dtype=torch.bfloat16,
            count=length * layout.row_bytes // torch.bfloat16.itemsize,
            offset=layout.row_start(offset),
        )
        return rows.view(length, len(layout.capture_points), -1)

    def let_go(self, offset: int, length: int) -> None:
        """Takes the rows out of this process's memory, until they are read again.

        Else all of a shard would be taken out at once when it is closed, tens of milliseconds for
        each GiB. mmap.madvise would keep other threads waiting.
        """
        rows = self.encoded_states(offset, length)
        begin = -(-rows.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (rows.data_ptr() + rows.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if begin < end:
            _libc.madvise(begin, end - begin, mmap.MADV_DONTNEED)

    def supervised_tokens(self, offset: int, length: int) -> torch.Tensor:
        """The ids of those tokens of the rows that are supervised, int64."""
        ids = self.layout.input_ids_start + 8 * offset
        mask = self.layout.loss_mask_start + offset
        ids_T = torch.frombuffer(self._bytes, dtype=torch.int64, count=length, offset=ids)
        return ids_T[torch.frombuffer(self._bytes, dtype=torch.bool, count=length, offset=mask)]

    def sample(self, offset: int, length: int) -> Sample:
        """Token ids and mask of the rows."""
        content = memoryview(self._bytes)
        ids = self.layout.input_ids_start + 8 * offset
        mask = self.layout.loss_mask_start + offset
        return Sample(
            tuple(content[ids : ids + 8 * length].cast("q")),
            tuple(content[mask : mask + length]),
        )
