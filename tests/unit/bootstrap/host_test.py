"""What a machine lacks is said in one line before anything is fetched."""

from __future__ import annotations

import errno
import importlib.util
import os
import platform
import pwd
import shutil
import sys
import threading
from collections import namedtuple
from pathlib import Path

import pytest

from tools.bootstrap import console, host, process
from tools.bootstrap.cache import cache_root
from tools.bootstrap.errors import BootstrapError

Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(("system", "machine"), [("Linux", "aarch64"), ("Darwin", "x86_64")])
def test_another_processor_or_system_is_refused(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(BootstrapError, match=f"for Linux x86_64 and this is {system} {machine}"):
        host.require_machine()


def test_missing_apt_tools_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apt-get").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BootstrapError, match=r"^dpkg-deb not found"):
        host.require_apt()


@pytest.mark.parametrize(
    ("prefix", "remedy"), [("/usr", "install it"), ("/x/.venv", "leave this virtual environment")]
)
def test_python_without_pip_is_refused(
    monkeypatch: pytest.MonkeyPatch, prefix: str, remedy: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(sys, "prefix", prefix)
    with pytest.raises(BootstrapError, match=f"has no pip: {remedy}"):
        host.require_pip()


def test_a_disk_too_small_is_refused_with_both_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, 99_000_000))
    with pytest.raises(BootstrapError, match="99 MB free and 450 MB are needed"):
        host.require_space(tmp_path / "not/yet/there", 450_000_000)
    host.require_space(tmp_path, 99_000_000)


@pytest.mark.parametrize(("value", "strict"), [("1", True), ("0", False), ("", False)])
def test_strict_is_asked_for_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, value: str, strict: bool
) -> None:
    monkeypatch.setenv("EAGLE3_STRICT", value)
    assert host.strict() is strict


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("EAGLE3_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_root() == Path("/home/someone/.cache/eagle3")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/someone")
    assert cache_root() == Path("/var/cache/someone/eagle3")
    monkeypatch.setenv("EAGLE3_CACHE", "/scratch")
    assert cache_root() == Path("/scratch")


def test_a_cache_that_each_step_would_seek_elsewhere_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EAGLE3_CACHE", "~/cache")
    with pytest.raises(BootstrapError, match="must be an absolute path and is ~/cache"):
        cache_root()
    monkeypatch.delenv("EAGLE3_CACHE")
    # The base directory specification says to pass such a path over.
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_root() == Path("/home/someone/.cache/eagle3")


def test_without_any_home_the_user_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EAGLE3_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(BootstrapError, match=r"HOME is not set .*: set EAGLE3_CACHE"):
        cache_root()


def test_a_disk_that_fills_stops_a_program_that_would_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_DISK_CHECK_INTERVAL_S", 0.05)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, 1_000_000))
    with pytest.raises(OSError, match="No space left") as error:
        process.attempt(["sleep", "600"], cwd=tmp_path)
    assert error.value.errno == errno.ENOSPC


def test_a_program_that_says_the_disk_is_full_is_believed() -> None:
    with pytest.raises(OSError, match="No space left"):
        process.run(["bash", "-c", "echo 'write: No space left on device'; exit 2"], action="x")


def test_a_failing_program_gives_the_line_that_says_why() -> None:
    script = "echo Reading...; echo 'E: no such thing'; echo 'E: some files failed'; exit 100"
    with pytest.raises(BootstrapError, match=r"^cannot look: no such thing$"):
        process.run(["bash", "-c", script], action="look")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (BootstrapError("do this"), 1, "ERROR: do this\n"),
        (KeyboardInterrupt(), 130, "interrupted; nothing half-made was kept"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x"), 1, "ERROR: the disk is full (/x)"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 1, "ERROR: cannot write (/x)"),
    ],
)
def test_every_error_is_one_line_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, line: str
) -> None:
    def command() -> None:
        raise error

    assert console.run(command) == code
    printed = capsys.readouterr().err
    assert line in printed
    assert printed.count("\n") == 1


def test_a_folder_that_goes_while_it_is_measured_ends_no_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    measured = threading.Event()
    size = console._size

    def note(folder: Path) -> int:
        if found := size(folder):
            measured.set()
        return found

    def as_before_python_3_13(*_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(Path, "rglob", as_before_python_3_13)
    monkeypatch.setattr(console, "_size", note)
    monkeypatch.setattr(console, "_LOG_INTERVAL_S", 0.05)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").write_bytes(bytes(500_000))
    with console.download("something", tmp_path, 1_000_000):
        measured.wait(200)
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "[eagle3 setup] fetching something, 1.0 MB"
    assert set(lines[1:-1]) == {"[eagle3 setup]   0.5 MB of 1.0 MB"}
