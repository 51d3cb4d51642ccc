"""Progress is a bar on a terminal and a line every few seconds elsewhere."""

import io
import re
import sys
import threading

import pytest

from eagle3 import progress
from eagle3.progress import Progress


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time stands still at `clock[0]`."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_without_a_terminal_lines_come_every_few_seconds_and_at_the_end(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress().bar("extracting", samples=4, tokens=4000) as bar:
        for seconds in (1, 5, 7, 8):
            clock[0] = 100.0 + seconds
            bar.advance(samples=1, tokens=1000)
    assert capsys.readouterr().err.splitlines() == [
        "extracting: 2/4 samples, 2,000/4,000 tokens, 400 tokens/s, 0:05 left",
        "extracting: 4/4 samples, 4,000/4,000 tokens, 500 tokens/s, 0:00 left",
    ]


def test_a_terminal_shows_a_bar(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with Progress().bar("extracting", samples=2, tokens=180_000) as bar:
        clock[0] += 10
        bar.advance(samples=1, tokens=15_000)
    drawn = screen.getvalue()
    assert "━" in drawn
    assert "1/2 samples, 15,000/180,000 tokens, 1,500 tokens/s, 1:50 left" in drawn
    assert "extracting: " not in drawn


class Reminding(Progress):
    """Tells when it has said so many lines, since a busy machine lets nothing happen on time."""

    def __init__(self, lines: int) -> None:
        self._left = lines
        self._said = threading.Event()

    def say(self, line: str) -> None:
        super().say(line)
        self._left -= 1
        if not self._left:
            self._said.set()

    def wait(self) -> None:
        assert self._said.wait(200)


def test_waiting_is_told_again_and_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_WAITING_LINES", 0.01)
    reminding = Reminding(lines=3)
    with reminding.waiting("starting the target"):
        reminding.wait()
    first, *between, last = capsys.readouterr().err.splitlines()
    assert first == "starting the target ..."
    assert between
    assert all(re.fullmatch(r"starting the target: \d+ s", line) for line in between)
    assert re.fullmatch(r"starting the target: done in \d+\.\d s", last)


def test_a_reminder_is_for_what_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress().reminding("saving"):
        pass
    assert not capsys.readouterr().err
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_WAITING_LINES", 0.01)
    reminding = Reminding(lines=2)
    with reminding.reminding("saving"):
        reminding.wait()
    said = capsys.readouterr().err.splitlines()
    assert said
    assert all(re.fullmatch(r"saving: \d+ s", line) for line in said)


def test_waiting_that_fails_is_not_told_as_done(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="broken"), Progress().waiting("starting"):
        raise ValueError("broken")
    assert capsys.readouterr().err.splitlines() == ["starting ..."]


def test_no_time_is_left_when_answers_were_shorter_than_they_could_be(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress().bar("answering", samples=2, tokens=200) as bar:
        for seconds, tokens in ((1, 40), (2, 30)):
            clock[0] = 100.0 + seconds
            bar.advance(samples=1, tokens=tokens)
    assert capsys.readouterr().err.splitlines() == [
        "answering: 2/2 samples, 70/200 tokens, 35 tokens/s, 0:00 left",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.4, "0:00"), (59.6, "1:00"), (754, "12:34"), (3599.7, "1:00:00"), (108_007, "30:00:07")],
)
def test_hours_are_told_as_hours(seconds: float, shown: str) -> None:
    assert progress.as_clock(seconds) == shown
