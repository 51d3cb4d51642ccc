"""Finished conversations on disk, so that a run that was killed goes on where it was.

One JSON line a conversation, in the order in which they ended, behind a line that says what run it
is. Lines are only ever appended; a last line that was torn is cut off.
"""

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, Self

import msgspec

from eagle3.errors import StoreError

_SECONDS_BETWEEN_SYNCS = 1.0


class _Named(msgspec.Struct):
    """Of a conversation's line the id alone: what is not kept is ten times as fast to read."""

    id: str


_read_named = msgspec.json.Decoder(_Named).decode


class Journal:
    """Opens or begins the journal at `path` of the run that `identity` describes.

    Memory holds the id and the place of each conversation, about 150 bytes. Raises StoreError for
    the journal of a run with other options, for one that another process is writing, for one that
    is damaged, and where the disk refuses.
    """

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self.path = path
        self._places: dict[str, int] = {}
        self._synced = time.monotonic()
        try:
            self._file = path.open("a+b")
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise StoreError(f"{path} is being written by another run; wait, or end it") from None
        try:
            self._read(identity)
        except BaseException:
            self._file.close()
            raise

    def _read(self, identity: dict[str, Any]) -> None:
        self._file.seek(0)
        good = 0
        for number, line in enumerate(self._file):
            if not line.endswith(b"\n"):
                break
            try:
                if number == 0:
                    self._check(json.loads(line), identity)
                else:
                    self._places[_read_named(line).id] = good
            except (ValueError, TypeError, AttributeError, msgspec.DecodeError) as error:
                raise StoreError(
                    f"{self.path} is damaged in line {number + 1}; remove it"
                ) from error
            good += len(line)
        self._file.truncate(good)
        if not good:
            self._append(identity)

    def _check(self, found: dict[str, Any], identity: dict[str, Any]) -> None:
        differing = sorted(
            name for name in found | identity if found.get(name) != identity.get(name)
        )
        if differing:
            raise StoreError(
                f"{self.path} was begun with another {', '.join(differing)}; go on as it was, "
                "remove it, or give another --out"
            )

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, conversation: str) -> bool:
        return conversation in self._places

    def read(self, conversation: str) -> dict[str, Any]:
        """What was written of `conversation`."""
        self._file.seek(self._places[conversation])
        return json.loads(self._file.readline())

    def write(self, conversation: str, entry: dict[str, Any]) -> None:
        """Appends what became of `conversation`; a kill of the process loses it no more.

        A power cut loses what was written in the last second.
        """
        place = self._append({"id": conversation, **entry})
        self._places[conversation] = place
        if time.monotonic() - self._synced > _SECONDS_BETWEEN_SYNCS:
            self._sync()

    def _append(self, entry: dict[str, Any]) -> int:
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        try:
            place = self._file.seek(0, os.SEEK_END)
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error
        return place

    def _sync(self) -> None:
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error
        self._synced = time.monotonic()

    def remove(self) -> None:
        """Removes the journal, when what it holds is safe elsewhere."""
        self.path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._sync()
        finally:
            self._file.close()
