"""Renews the package pins of all lock files from the archive's current index.

    python3 tools/bootstrap/refresh.py

A second run changes nothing until the archive moves. The wheels' pins are renewed by hand.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.bootstrap import bazel, console, debian, host, interpreter
from tools.bootstrap.cache import cache_root
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.pins import Pins, read_pins, write_pins
from tools.bootstrap.prefix import exclusive, staging

# Images hold the interpreter's own libraries: their locks move together with its lock.
_IMAGES = Path(__file__).resolve().parents[2] / "third_party/debian"
_REMOTE = Path(__file__).resolve().parents[1] / "remote/programs.lock.json"


def refresh(lock: Path) -> None:
    old = read_pins(lock)
    folder = cache_root() / "refresh"
    with exclusive(folder, "refreshing the locks"), staging(folder) as stage:
        new = current_pins(debian.Archive(stage / "apt", old.suites), old)
    for pin in new.debs:
        if pin.name == "bazel-bootstrap":
            bazel.check_version(pin.version)
    write_pins(lock, new)
    changed = len(set(new.debs) - set(old.debs))
    console.say(f"{lock.name}: {len(new.debs)} packages, {changed} changed")


def current_pins(archive: debian.Archive, old: Pins) -> Pins:
    found, gone = archive.locate(debian.current_names(archive, old))
    if gone:
        raise BootstrapError(f"the archive has no such package: {'; '.join(gone)}")
    return dataclasses.replace(old, debs=tuple(sorted(found, key=lambda pin: pin.name)))


def main() -> None:
    host.require_machine()
    host.require_apt()
    images = sorted(_IMAGES.glob("*.lock.json"))
    for lock in (bazel.LOCK, interpreter.LOCK, _REMOTE, *images):
        refresh(lock)


if __name__ == "__main__":
    sys.exit(console.run(main))
