"""What a training that follows an extraction was given, in order, in a file of its folder."""

import json
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from eagle3.errors import StoreError
from eagle3.store.durable import append_lines, sync_folder
from eagle3.store.index import IndexEntry, parse_entry

ORDER = "order.jsonl"


class Mark(Enum):
    """What else decides how samples are packed.

    `WAIT`: extraction waited for room, so open batches were closed. `END`: no more samples came.
    """

    WAIT = "wait"
    END = "end"


Event = IndexEntry | Mark


class CommitOrder:
    """The file in `out`: a line an event, only ever appended to; each method raises StoreError."""

    def __init__(self, out: Path) -> None:
        self._path = out / ORDER

    def read(self) -> list[Event]:
        """All events; none where there is no file."""
        try:
            content = self._path.read_bytes()
            return list(map(_parse, content[: content.rfind(b"\n") + 1].splitlines()))
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
            raise StoreError(
                f"{self._path} is damaged ({error}); give another --out to begin again"
            ) from error

    def append(self, events: Sequence[Event]) -> None:
        """Makes events last."""
        try:
            append_lines(self._path, b"".join(map(_line, events)))
            sync_folder(self._path.parent)
        except OSError as error:
            raise StoreError(f"cannot write {self._path}: {error.strerror}") from error

    def begin(self) -> None:
        """Forgets the events of a run that left no checkpoint."""
        self._path.unlink(missing_ok=True)


def _line(event: Event) -> bytes:
    if isinstance(event, Mark):
        return json.dumps({"mark": event.value}).encode() + b"\n"
    return event.to_line()


def _parse(line: bytes) -> Event:
    fields = json.loads(line)
    return Mark(fields["mark"]) if "mark" in fields else parse_entry(line)
