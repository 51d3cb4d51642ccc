"""The index: one line for each committed sample, only ever appended to.

A sample is committed when its line, newline included, stands in the index. A line that a kill
cut short has no newline and does not count.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePath

from eagle3.errors import StoreError
from eagle3.store.durable import write_file

INDEX = "index.jsonl"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """The sample `id` has `length` rows from row `offset` of the file `shard` on.

    `shard` is relative to the folder of the store. `checksum` is that of checksum.py. `held_out`:
    nothing may be trained on it.
    """

    id: str
    shard: str
    offset: int
    length: int
    checksum: str
    held_out: bool = False

    def to_line(self) -> bytes:
        fields = asdict(self)
        if not self.held_out:
            # A line as before there was such a field: most are, and older programs read it.
            del fields["held_out"]
        return json.dumps(fields).encode() + b"\n"

    def within(self, part: str) -> "IndexEntry":
        """The same entry, as seen from the folder that holds the folder `part`."""
        return replace(self, shard=sys.intern(f"{part}/{self.shard}"))

    def outside(self) -> "IndexEntry":
        """The same entry, as seen from the folder in which its shard lies."""
        return replace(self, shard=sys.intern(PurePath(self.shard).name))


def read_index(folder: Path) -> dict[str, IndexEntry]:
    """The committed samples by id; a sample that was written again counts as last written.

    Raises StoreError where a whole line cannot be read.
    """
    path = folder / INDEX
    return {entry.id: entry for entry in _parse_index(path, _read(path))}


class IndexWriter:
    """Appends to the index of `folder`, which is made where it is missing.

    Raises OSError, and StoreError where another process appends, too.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / INDEX
        content = _read(self._path)
        self.entries = {entry.id: entry for entry in _parse_index(self._path, content)}
        self._size = _whole_lines(content)
        self._descriptor = self._open()
        # What a kill left of a line would swallow the next one.
        os.truncate(self._path, self._size)

    def close(self) -> None:
        os.close(self._descriptor)

    def replace(self, entries: dict[str, IndexEntry]) -> None:
        """Makes the index one of `entries` alone."""
        lines = b"".join(entry.to_line() for entry in entries.values())
        write_file(self._path, lines)
        self.close()
        self._descriptor = self._open()
        self._size = len(lines)
        self.entries = dict(entries)

    def append(self, entries: Iterable[IndexEntry]) -> None:
        """Makes the entries count, and last; either all of them or, with an error, none."""
        entries = list(entries)
        if os.fstat(self._descriptor).st_size != self._size:
            # Locks would have told earlier, but not every network file system has them.
            raise StoreError(
                f"another run has written to {self._path}; let only one run at a time write to "
                "a folder, or split the work with --shard"
            )
        lines = b"".join(entry.to_line() for entry in entries)
        if os.write(self._descriptor, lines) != len(lines):
            os.truncate(self._path, self._size)
            raise OSError(28, "the index took only a part of its lines: is the disk full?")
        os.fsync(self._descriptor)
        self._size += len(lines)
        self.entries.update((entry.id, entry) for entry in entries)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)


def parse_entry(line: bytes) -> IndexEntry:
    """Raises ValueError, TypeError or AttributeError for any line but that of an entry."""
    fields = json.loads(line)
    # Millions of samples lie in thousands of shards.
    fields["shard"] = sys.intern(fields.get("shard"))
    return IndexEntry(**fields)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def _whole_lines(content: bytes) -> int:
    return content.rfind(b"\n") + 1


def _parse_index(path: Path, content: bytes) -> Iterator[IndexEntry]:
    for number, line in enumerate(content[: _whole_lines(content)].splitlines(), start=1):
        try:
            yield parse_entry(line)
        except (ValueError, TypeError, AttributeError) as error:
            raise StoreError(
                f"{path}:{number} is damaged ({error}); extract into another folder"
            ) from error
