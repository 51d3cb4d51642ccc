"""How the commands of the remote service understand their user."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.bootstrap.cache import cache_root
from tools.remote.console import main, user_file


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Those of the test program come back."""
    before = {stop: signal.getsignal(stop) for stop in (signal.SIGINT, signal.SIGTERM)}
    yield
    for stop, handler in before.items():
        signal.signal(stop, handler)


def test_a_file_is_where_the_user_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    assert user_file("ca.pem") == tmp_path / "ca.pem"
    assert user_file("/etc/ca.pem") == Path("/etc/ca.pem")


def test_without_bazel_it_is_where_the_program_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)
    monkeypatch.chdir(tmp_path)
    assert user_file("ca.pem") == tmp_path / "ca.pem"


def test_a_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(lambda: print((tmp_path / "ca.pem").read_bytes())) == 1
    told = capsys.readouterr().err
    assert told.startswith("[remote] ERROR: ")
    assert told.endswith("No such file or directory: '" + str(tmp_path / "ca.pem") + "'\n")


def test_a_cache_that_cannot_be_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EAGLE3_CACHE", "cache")
    assert main(lambda: print(cache_root())) == 1
    assert "ERROR: EAGLE3_CACHE must be an absolute path" in capsys.readouterr().err


@pytest.mark.parametrize(("endless", "code"), [(True, 0), (False, 130)])
def test_only_what_runs_until_it_is_stopped_was_stopped_in_good_order(
    endless: bool, code: int
) -> None:
    def command() -> None:
        signal.raise_signal(signal.SIGTERM)

    assert main(command, endless=endless) == code
