"""The progress of reading: a line now and then, with the time left."""

import time

import pytest

from eagle3.preparation.bar import reading_bar


def test_lines_tell_share_rate_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with reading_bar(1000) as bar:
        # Starting the processes took a minute, which says nothing of the work.
        now[0] = 160.0
        bar.update(bytes_read=100, rows=10, tokens=50)
        for step in range(1, 5):
            now[0] += 2.0
            bar.update(bytes_read=100 + 50 * step, rows=10 + step, tokens=50 + 100 * step)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "preparing: 10%, 10 rows",
        "preparing: 25%, 13 rows, 50 tokens/s, 0:30 left",
    ]


def test_the_time_left_is_that_of_the_rows_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with reading_bar(1_000_000, limit=40) as bar:
        bar.update(bytes_read=50, rows=10, tokens=50)
        now[0] += 10.0
        bar.update(bytes_read=100, rows=20, tokens=100)
    assert bar.state() == "50%, 20 rows, 5 tokens/s, 0:20 left"


def test_empty_data_is_no_division_by_zero(capsys: pytest.CaptureFixture[str]) -> None:
    with reading_bar(0) as bar:
        bar.update(bytes_read=0, rows=0, tokens=0)
    assert bar.state() == "0%, 0 rows"
