"""A state folder belongs to one process, on a disk that has room."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tools.remote import state
from tools.remote.errors import ServiceError


class Usage(NamedTuple):
    free: int


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Free bytes of every disk, as its only element."""
    free = [state.RESERVED_BYTES]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(free[0]))
    return free


def test_the_folder_is_made_and_belongs_to_one(tmp_path: Path, disk: list[int]) -> None:
    folder = tmp_path / "a/state"
    refused = pytest.raises(ServiceError, match="a service runs in")
    with state.only_one(folder), refused, state.only_one(folder):
        pass
    with state.only_one(folder):
        pass


def test_a_full_disk_is_refused_with_both_figures(tmp_path: Path, disk: list[int]) -> None:
    disk[0] = 300_000_000
    refused = pytest.raises(ServiceError, match=r"300 MB free and the store leaves 2,000 MB unused")
    with refused, state.only_one(tmp_path):
        pass


def test_a_disk_that_fills_is_told_once_each_time(tmp_path: Path, disk: list[int]) -> None:
    watch = state.DiskWatch(tmp_path)
    seen = []
    for free_gb in (3, 1, 1, 3, 1):
        disk[0] = free_gb * 1_000_000_000
        seen.append("1,000 MB free" in (watch.look() or ""))
    assert seen == [False, True, False, False, True]
