"""The pinned artifacts: what the *.lock.json files beside this module hold."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.bootstrap.errors import BootstrapError


@dataclass(frozen=True)
class Pin:
    """One package of the archive or of the package index; size in bytes."""

    name: str
    version: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Pins:
    """One lock file.

    suites: of the Debian archive, the preferred one first. roots: packages whose dependencies
    lead to the others, if there are such. extra: packages to take although nothing depends on
    them.
    """

    suites: tuple[str, ...]
    roots: tuple[str, ...]
    extra: tuple[str, ...]
    debs: tuple[Pin, ...]
    wheels: tuple[Pin, ...]


def read_pins(path: Path) -> Pins:
    """Raises BootstrapError where the file is not such a lock."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Pins(
            suites=tuple(data["suites"]),
            roots=tuple(data["roots"]),
            extra=tuple(data["extra"]),
            debs=tuple(Pin(**pin) for pin in data["debs"]),
            wheels=tuple(Pin(**pin) for pin in data["wheels"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BootstrapError(
            f"{path.name} is not a lock ({type(error).__name__}: {error}): restore it with "
            "`git checkout`, and renew it with `python3 tools/bootstrap/refresh.py`"
        ) from None


def write_pins(path: Path, pins: Pins) -> None:
    path.write_text(json.dumps(asdict(pins), indent=2) + "\n", encoding="utf-8")
