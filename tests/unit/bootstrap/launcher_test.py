"""The launcher tools/bazel, with stand-ins for the set-up and for Bazel."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_LAUNCHER = Path(__file__).parents[3] / "tools/bazel"
_SHOW = '#!/bin/sh\nprintf "%s\\n" "{name}" "USER=$USER" "$@"\n'


@pytest.fixture
def launcher(tmp_path: Path) -> Path:
    """A copy of the launcher whose set-up prints a stand-in for Bazel."""
    launcher = tmp_path / "a clone/tools/bazel"
    (launcher.parent / "bootstrap").mkdir(parents=True)
    shutil.copy(_LAUNCHER, launcher)
    start = write_program(tmp_path / "start it", _SHOW.format(name="pinned"))
    set_up(launcher, f"print({str(start)!r})")
    return launcher


def write_program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def set_up(launcher: Path, code: str) -> None:
    (launcher.parent / "bootstrap/bazel.py").write_text(code)


def run(launcher: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {"PATH": os.environ["PATH"]} | environment
    return subprocess.run([launcher, *arguments], env=settings, capture_output=True, text=True)


def test_arguments_reach_the_pinned_bazel_unchanged(launcher: Path, tmp_path: Path) -> None:
    link = tmp_path / "bazel"
    link.symlink_to(launcher)
    done = run(link, "build", "//a b", "", "*", USER="me")
    assert done.stdout.splitlines() == ["pinned", "USER=me", "build", "//a b", "", "*"]


def test_the_bazel_that_bazelisk_chose_is_used_without_a_set_up(
    launcher: Path, tmp_path: Path
) -> None:
    set_up(launcher, "raise SystemExit('set up after all')")
    chosen = write_program(tmp_path / "real", _SHOW.format(name="chosen"))
    done = run(launcher, "test", "//...", BAZEL_REAL=str(chosen), USER="me")
    assert done.stdout.splitlines() == ["chosen", "USER=me", "test", "//..."]


def test_a_user_is_named_where_the_environment_has_none(launcher: Path) -> None:
    user = run(launcher).stdout.splitlines()[1]
    assert user.removeprefix("USER=") != ""


def test_a_user_that_the_machine_does_not_know_goes_by_number(
    launcher: Path, tmp_path: Path
) -> None:
    """`id -un` prints the number there, and fails all the same."""
    programs = tmp_path / "programs"
    programs.mkdir()
    write_program(programs / "id", '#!/bin/sh\necho 1234\n[ "$1" = -u ]\n')
    done = run(launcher, PATH=f"{programs}:{os.environ['PATH']}")
    assert done.stdout.splitlines() == ["pinned", "USER=1234"]


def test_a_failed_set_up_ends_it_with_its_exit_code(launcher: Path) -> None:
    set_up(launcher, "import sys; sys.exit(3)")
    done = run(launcher, "version", USER="me")
    assert (done.returncode, done.stdout) == (3, "")


@pytest.mark.parametrize("python", [None, "#!/bin/sh\nexit 1\n"], ids=["missing", "too old"])
def test_an_unfit_python_is_told_in_one_line(
    launcher: Path, tmp_path: Path, python: str | None
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("dirname", "readlink"):
        program = shutil.which(name)
        assert program is not None
        (tools / name).symlink_to(program)
    if python:
        write_program(tools / "python3", python)
    done = run(launcher, "version", PATH=str(tools))
    assert done.returncode == 1
    assert done.stderr == (
        "[eagle3 setup] ERROR: python3 >= 3.9 is needed: apt-get install python3 python3-pip\n"
    )
