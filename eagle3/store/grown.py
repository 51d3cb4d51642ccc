"""A file of entries that only ever grows, of which each line is read once."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

from eagle3.errors import StoreError
from eagle3.store.index import IndexEntry, parse_entry


class GrownFile:
    """The entries of the file `name` in the folder `part` of `store`, as seen from `store`.

    `read` reads all of them in a folder; it is asked where a line is damaged, to say so.
    """

    def __init__(
        self, store: Path, part: str, name: str, read: Callable[[Path], dict[str, IndexEntry]]
    ) -> None:
        self._folder = store / part
        self._path = self._folder / name
        self._part = part
        self._read = read
        self._begin(inode=-1)

    def entries(self) -> Mapping[str, IndexEntry]:
        """The entries by id, those that were added by now included. Raises StoreError."""
        try:
            with self._path.open("rb") as file:
                self._take(file)
        except FileNotFoundError:
            self._begin(inode=-1)
        except OSError as error:
            raise StoreError(f"cannot read {self._path}: {error.strerror}") from error
        except (ValueError, TypeError, AttributeError):
            self._begin(inode=-1)
            self._add(self._read(self._folder).values())
        return self._entries

    def _begin(self, inode: int) -> None:
        self._entries: dict[str, IndexEntry] = {}
        self._inode = inode
        self._end = 0  # of the lines that were read

    def _take(self, file: BinaryIO) -> None:
        inode = os.fstat(file.fileno()).st_ino
        file.seek(max(0, self._end - 1))
        if inode != self._inode or (self._end and file.read(1) != b"\n"):
            # Another file, or one that was cut: as where shards were removed.
            self._begin(inode)
            file.seek(0)
        content = file.read()
        lines = content[: content.rfind(b"\n") + 1]
        self._add(map(parse_entry, lines.splitlines()))
        self._end += len(lines)

    def _add(self, entries: Iterable[IndexEntry]) -> None:
        for entry in entries:
            self._entries[entry.id] = entry.within(self._part) if self._part else entry
