"""A few of the kills of kills.py; `bazel run :kills` makes a hundred."""

from pathlib import Path

from tests.endurance.kills import Kills


def test_a_resumed_store_equals_an_uninterrupted_one_byte_by_byte(tmp_path: Path) -> None:
    # Of this seed's kills one meets the command in a commit, one its worker in extraction, and one
    # comes at the start.
    kills = Kills(tmp_path, seed=133)
    kills.kill(3)
    assert kills.met.total() == 3
    assert {phase for phase, _ in kills.met} == {"start", "extraction", "commit"}
    assert {name for _, name in kills.met} >= {"command", "worker"}
