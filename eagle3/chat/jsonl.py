"""Reads JSONL files line by line, so that every complaint can name its line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3.errors import InputError


@dataclass(frozen=True)
class Record:
    """One JSON object of a JSONL file."""

    path: Path
    line: int
    fields: dict[str, Any]

    @property
    def place(self) -> str:
        """`FILE:LINE`, the start of every message about this record."""
        return f"{self.path.name}:{self.line}"


def read_jsonl(path: Path, limit: int | None = None) -> Iterator[Record]:
    """Yields the objects of `path` in order, at most `limit` of them; blank lines are passed over.

    Raises InputError, with the line number, for what cannot be read, is not UTF-8 or is not a
    JSON object.
    """
    try:
        with path.open("rb") as lines:
            records = 0
            for number, line in enumerate(lines, start=1):
                if records == limit:
                    return
                if not line.strip():
                    continue
                yield Record(path, number, _parse(line.rstrip(b"\r\n"), f"{path.name}:{number}"))
                records += 1
    except OSError as error:
        raise InputError(
            f"cannot read the data {path}: {error.strerror}; give a JSONL file with --data"
        ) from error


def _parse(line: bytes, place: str) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: not UTF-8 (byte {error.start + 1} of the line)") from error
    except json.JSONDecodeError as error:
        raise InputError(
            f"{place}: not valid JSON: {error.msg} at column {error.colno}; "
            "each line must hold one whole JSON object"
        ) from error
    if not isinstance(value, dict):
        raise InputError(f"{place}: a JSON object is needed here, not {type(value).__name__}")
    return value
