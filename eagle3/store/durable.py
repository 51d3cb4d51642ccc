"""File operations that survive a kill and a power cut."""

import ctypes
import fcntl
import os
import shutil
from collections.abc import Buffer, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from eagle3.errors import StoreError

PARTIAL = ".partial"
_BLOCK_BYTES = 64 * 1024

# linux/fs.h: begin to write pages that are dirty, and do not wait for the end.
_SYNC_FILE_RANGE_WRITE = 2
_libc = ctypes.CDLL(None)
_libc.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def partial_path(path: Path) -> Path:
    """Where a file is written before it is renamed to `path`."""
    return path.with_name(path.name + PARTIAL)


def write_file(path: Path, content: bytes) -> None:
    """Makes `path` appear with all of `content`, or not at all; `sync_folder` makes it last."""
    partial = partial_path(path)
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)


def append_lines(path: Path, lines: bytes) -> None:
    """Appends whole lines, and makes them last; `sync_folder` makes a new file last."""
    with path.open("a+b") as file:
        # What a kill left of a line would swallow the next one.
        file.truncate(_end_of_last_line(file))
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


def _end_of_last_line(file: BinaryIO) -> int:
    """Where a file's last whole line ends; looks at no more than what follows it."""
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(0, end - _BLOCK_BYTES)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def write_at(descriptor: int, content: Buffer, position: int) -> None:
    """Writes all of `content`; one call of the system takes 2 GiB at most, or less if it likes."""
    rest = memoryview(content).cast("B")
    while rest:
        written = os.pwrite(descriptor, rest, position)
        rest = rest[written:]
        position += written


def start_sync(descriptor: int, position: int, size: int) -> bool:
    """Asks the kernel to begin with what an fsync would have to do for these bytes.

    False where the file cannot, which is no error: nothing rests on it. See sync_file_range(2).
    """
    return _libc.sync_file_range(descriptor, position, size, _SYNC_FILE_RANGE_WRITE) == 0


def sync_folder(folder: Path) -> None:
    """Makes the renames and new files in `folder` last."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(folder: Path, out: Path | None = None) -> Generator[None]:
    """Keeps other processes from locking `folder`.

    StoreError where one has it, which calls the folder by the name `out` that users know.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StoreError(
            f"another run is writing to {out or folder}; wait for it, or give another --out"
        ) from error
    except OSError:
        # Some network file systems have no locks.
        pass
    try:
        yield
    finally:
        os.close(descriptor)


def link_or_copy(source: Path, target: Path) -> None:
    """Makes `target` a file of the same content; not a byte is copied where links are known."""
    try:
        os.link(source, target)
    except OSError:
        with source.open("rb") as content, target.open("wb") as copy:
            shutil.copyfileobj(content, copy, 16 * 1024 * 1024)
            copy.flush()
            os.fsync(copy.fileno())
