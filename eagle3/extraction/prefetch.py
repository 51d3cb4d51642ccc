"""Fetches a checkpoint into the page cache, by many reads at once, while the target is started.

The loader reads one file after the other, each rank for itself, and waits for every answer: from
a network folder that is a small part of what the folder can give. What lies in the page cache, all
ranks get at the speed of memory.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from eagle3.extraction.size import readable_size
from eagle3.memory import available_memory
from eagle3.progress import BytesDone, Progress

_READERS = 16
_BLOCK_BYTES = 16 * 2**20
# Linux asks a file system for no more at a time than its read-ahead, which is this by default
# (mm/readahead.c, force_page_cache_ra), so a block is announced piece by piece.
_READ_AHEAD_BYTES = 128 * 2**10
# More would push out of the page cache what was fetched first and is not loaded yet.
_SHARE_OF_MEMORY = 0.8


class Prefetch:
    """Fetches `files`, in their order, for as long as the context lasts.

    It ends early where memory would become scarce or a file cannot be read, and says so: the
    loader reads for itself what was not fetched.
    """

    def __init__(self, files: Sequence[Path], progress: Progress) -> None:
        self._progress = progress
        # The loader tells of what is missing.
        sizes = {path: path.stat().st_size for path in files if path.exists()}
        self._total = sum(sizes.values())
        self._blocks = _blocks(sizes)
        self._handed = self._read = 0
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._done = BytesDone(progress, "prefetching")
        self._readers = [
            threading.Thread(target=self._fetch_blocks, daemon=True) for _ in range(_READERS)
        ]

    def __enter__(self) -> Self:
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.wait()

    def wait(self) -> None:
        """Returns when there is nothing more to fetch."""
        for reader in self._readers:
            reader.join()

    def _fetch_blocks(self) -> None:
        buffer = bytearray(_BLOCK_BYTES)
        while block := self._next():
            path, offset, size = block
            try:
                _fetch(path, offset, memoryview(buffer)[:size])
            except OSError as error:
                self._give_up(f"cannot read {path}: {error.strerror}")
                return
            with self._lock:
                self._read += size
                self._done(self._read, self._total)

    def _next(self) -> tuple[Path, int, int] | None:
        """A block that no other reader has; None where there is nothing more to do."""
        with self._lock:
            if self._stopped.is_set():
                return None
            block = next(self._blocks, None)
            if block is None:
                return None
            self._handed += block[2]
            available = available_memory()
            if self._handed <= _SHARE_OF_MEMORY * available:
                return block
        self._give_up(f"{readable_size(available)} of memory can be had")
        return None

    def _give_up(self, reason: str) -> None:
        if not self._stopped.is_set():
            self._stopped.set()
            self._progress.say(
                f"prefetching: ends after {readable_size(self._read)} of "
                f"{readable_size(self._total)}: {reason}"
            )


def _blocks(sizes: dict[Path, int]) -> Iterator[tuple[Path, int, int]]:
    """File, offset and size of each."""
    for path, size in sizes.items():
        for offset in range(0, size, _BLOCK_BYTES):
            yield path, offset, min(_BLOCK_BYTES, size - offset)


def _fetch(path: Path, offset: int, buffer: memoryview) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for piece in range(offset, offset + len(buffer), _READ_AHEAD_BYTES):
            os.posix_fadvise(descriptor, piece, _READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
        # Returns when all of it has come.
        os.preadv(descriptor, [buffer], offset)
    finally:
        os.close(descriptor)
