"""A few of the kills of kills.py; `bazel run :kills` makes a hundred."""

from pathlib import Path

from tests.endurance.kills import Kills


def test_a_resumed_store_equals_an_uninterrupted_one_byte_by_byte(tmp_path: Path) -> None:
    kills = Kills(tmp_path, seed=1)
    kills.kill(5)
    assert kills.met.total() == 5
