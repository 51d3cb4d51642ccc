"""Reads JSONL line by line, so that every complaint can name its line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from eagle3.errors import InputError

HALF_CHARACTER = "holds half of a surrogate pair (\\ud800 to \\udfff), which is no text"

_decode = msgspec.json.Decoder().decode


class Record(NamedTuple):
    """One row of a data file. `place` (`FILE:LINE`) begins every message about it."""

    place: str
    fields: dict[str, Any]


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
                yield parse_line(line, f"{path.name}:{number}")
                records += 1
    except OSError as error:
        raise InputError(
            f"cannot read the data {path}: {error.strerror}; give a JSONL file with --data"
        ) from error


def parse_line(line: bytes, place: str) -> Record:
    """Reads one line; raises InputError where it is not a JSON object in UTF-8."""
    try:
        value = _value(line)
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: not UTF-8 (byte {error.start + 1} of the line)") from error
    except json.JSONDecodeError as error:
        raise InputError(
            f"{place}: not valid JSON: {error.msg} at column {error.colno}; "
            "each line must hold one whole JSON object"
        ) from error
    except UnicodeEncodeError as error:
        raise InputError(f"{place}: {HALF_CHARACTER}; remove the row") from error
    # Lines that nest deeper than Python's stack.
    except RecursionError as error:
        raise InputError(f"{place}: nested too deeply") from error
    if not isinstance(value, dict):
        raise InputError(f"{place}: a JSON object is needed here, not {type(value).__name__}")
    return Record(place, value)


def parse_json(text: str) -> Any:
    """Reads JSON; UnicodeEncodeError where its strings are no text, and no tokenizer takes them.

    Raises JSONDecodeError and RecursionError, too.
    """
    value = json.loads(text)
    # Python takes half of a surrogate pair for a character.
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def _value(line: bytes) -> Any:
    try:
        return _decode(line)
    # msgspec is several times faster; what is no JSON, and why, is for Python's own reader to say.
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return parse_json(line.rstrip(b"\r\n").decode("utf-8"))
