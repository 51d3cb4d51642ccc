"""The index: one line for each committed sample, only ever appended to.

A sample is committed when its line, newline included, stands in the index. A line that a kill
cut short has no newline and does not count.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from eagle3.errors import StoreError

INDEX = "index.jsonl"


@dataclass(frozen=True)
class IndexEntry:
    """`tokens` is T; `size`, in bytes, and `sha256` are of the sample's file."""

    id: str
    tokens: int
    size: int
    sha256: str

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def read_index(folder: Path) -> dict[str, IndexEntry]:
    """The committed samples by id; a sample that was written again counts as last written.

    Raises StoreError where a whole line cannot be read.
    """
    path = folder / INDEX
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    entries = {}
    whole = content[: content.rfind(b"\n") + 1]
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            entry = IndexEntry(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise StoreError(
                f"{path}:{number} is damaged ({error}); extract into another folder"
            ) from error
        entries[entry.id] = entry
    return entries
