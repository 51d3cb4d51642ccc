"""Samples whose states were unfit, set aside: they are done, and not in the store."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from eagle3.errors import StoreError
from eagle3.store.durable import append_lines

QUARANTINE = "quarantine.jsonl"


@dataclass(frozen=True, slots=True)
class QuarantineEntry:
    """`fault` is its kind, `detail` says where in the data and in the states it was seen."""

    id: str
    fault: str
    detail: str


def read_quarantine(folder: Path) -> dict[str, QuarantineEntry]:
    """The samples set aside, by id. Raises StoreError where the file is damaged."""
    path = folder / QUARANTINE
    try:
        content = path.read_bytes()
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        entries = (QuarantineEntry(**json.loads(line)) for line in lines)
        return {entry.id: entry for entry in entries}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(
            f"{path} is damaged ({error}); remove it, and its samples are tried again"
        ) from error


def append_quarantine(folder: Path, entries: Iterable[QuarantineEntry]) -> None:
    """Sets samples aside at once and for good. Raises OSError."""
    lines = (json.dumps(asdict(entry)).encode() + b"\n" for entry in entries)
    append_lines(folder / QUARANTINE, b"".join(lines))


def count_faults(entries: Iterable[QuarantineEntry]) -> dict[str, int]:
    """How many samples each kind of fault set aside."""
    return dict(sorted(Counter(entry.fault for entry in entries).items()))
