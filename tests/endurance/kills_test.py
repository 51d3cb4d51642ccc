"""A few of the kills of kills.py; `bazel run :kills` makes a hundred."""

from pathlib import Path

from tests.endurance.kills import Kills


def test_a_resumed_store_equals_an_uninterrupted_one_byte_by_byte(tmp_path: Path) -> None:
    wanted = [("commit", "command"), ("extraction", "worker"), ("start", "command")]
    kills = Kills(tmp_path, seed=133)
    kills.kill(3, wanted)
    assert kills.met == dict.fromkeys(wanted, 1)
