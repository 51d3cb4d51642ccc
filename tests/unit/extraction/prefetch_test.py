"""Weights are fetched many blocks at once, in order, and never more than memory holds."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from eagle3 import progress
from eagle3.extraction import prefetch
from eagle3.extraction.prefetch import Prefetch
from eagle3.progress import Progress

BLOCK = 1000
PLENTY = 10**9


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "_BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(prefetch, "available_memory", lambda: PLENTY)
    # How far it is would be told where the machine is busy.
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 600.0)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Not in the order of their names, the last block of each not a whole one."""
    paths = [tmp_path / name for name in ("second", "first", "third")]
    for path in paths:
        path.write_bytes(os.urandom(19 * BLOCK + 500))
    return paths


class Reads:
    """Takes the place of what reads a block, and calls `meanwhile` where that takes its time."""

    def __init__(self, meanwhile: Callable[["Reads"], object]) -> None:
        self.blocks: list[tuple[str, int, int]] = []
        self.at_once = self.most_at_once = 0
        self._meanwhile = meanwhile
        self._lock = threading.Lock()

    def __call__(self, path: Path, offset: int, buffer: memoryview) -> None:
        with self._lock:
            self.blocks.append((path.name, offset, len(buffer)))
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        self._meanwhile(self)
        with self._lock:
            self.at_once -= 1


def reads(
    monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Reads], object] = lambda _: None
) -> Reads:
    reads = Reads(meanwhile)
    monkeypatch.setattr(prefetch, "_fetch", reads)
    return reads


def fetch(files: list[Path]) -> None:
    with Prefetch(files, Progress()) as fetching:
        fetching.wait()


def test_every_byte_is_read_once_and_announced_before(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, announced = [], []
    preadv, fadvise = os.preadv, os.posix_fadvise

    def count(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        read.append(preadv(descriptor, buffers, offset))
        return read[-1]

    def note(descriptor: int, offset: int, length: int, advice: int) -> None:
        announced.append((offset, length, advice))
        fadvise(descriptor, offset, length, advice)

    monkeypatch.setattr(os, "preadv", count)
    monkeypatch.setattr(os, "posix_fadvise", note)
    monkeypatch.setattr(prefetch, "_READ_AHEAD_BYTES", 400)
    fetch(files)
    assert sum(read) == 3 * (19 * BLOCK + 500)
    assert len(read) == 3 * 20
    # 400, 400 and 200 bytes of a block, 400 and 100 of the last one of each file.
    assert len(announced) == 3 * (19 * 3 + 2)
    assert {advice for *_, advice in announced} == {os.POSIX_FADV_WILLNEED}


def test_blocks_are_taken_in_the_order_of_the_files(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "_READERS", 1)
    taken = reads(monkeypatch)
    fetch(files)
    assert taken.blocks == [
        (path.name, offset, min(BLOCK, 19 * BLOCK + 500 - offset))
        for path in files
        for offset in range(0, 19 * BLOCK + 500, BLOCK)
    ]


def test_many_are_read_at_once(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    all_read = threading.Event()

    def wait_for_all(taken: Reads) -> None:
        if taken.at_once == 16:
            all_read.set()
        all_read.wait(60)

    taken = reads(monkeypatch, wait_for_all)
    fetch(files)
    assert taken.most_at_once == 16
    assert len(set(taken.blocks)) == len(taken.blocks) == 3 * 20


def test_no_more_is_fetched_than_a_share_of_memory(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = reads(monkeypatch)
    monkeypatch.setattr(prefetch, "available_memory", lambda: 10 * BLOCK)
    fetch(files)
    assert len(taken.blocks) == 8
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("prefetching: ends after ")
    assert line.endswith("kB of 58.5 kB: 10.0 kB of memory can be had")


def test_a_file_that_cannot_be_read_ends_it(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(path: Path, offset: int, buffer: memoryview) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(prefetch, "_fetch", fail)
    fetch(files)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("prefetching: ends after 0 bytes of 58.5 kB: cannot read ")
    assert line.endswith(": Input/output error")


def test_a_missing_file_is_left_to_the_loader(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    files[0].unlink()
    taken = reads(monkeypatch)
    fetch(files)
    assert {name for name, *_ in taken.blocks} == {"first", "third"}


def test_it_ends_with_its_context(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    fetching = Prefetch(files, Progress())
    taken = reads(monkeypatch, lambda _: fetching._stopped.wait())
    with fetching:
        while not taken.blocks:
            time.sleep(0.001)
    assert len(taken.blocks) <= 16
    assert taken.at_once == 0


def test_the_end_is_told_with_the_rate(
    files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    fetch(files)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("prefetching: 0.0/0.0 GB, ")
    assert line.endswith(" GB/s, 0:00 left")
