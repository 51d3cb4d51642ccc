"""The bench of extraction on SmolLM2: what it reports, and that detectors cost next to nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eagle3.bench_extract import bench_extract

KEYS = {
    "plain_tokens_per_s",
    "old_tokens_per_s",
    "tokens_per_s",
    "ratio",
    "bytes_per_s",
    "peak_rss_gib",
    "detectors_share",
    "unchecked_tokens_per_s",
}
SMALL = ("--prompts", "8", "--length", "256", "--max-tokens-per-step", "512")


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    board = tmp_path_factory.mktemp("bench") / "scoreboard.md"
    arguments = [*SMALL, "--roads", "plain,old,ours,unchecked", "--append", str(board), "--json"]
    result = CliRunner().invoke(bench_extract, arguments)
    assert result.exit_code == 0, result.output
    return {"row": board.read_text().splitlines()[-1]} | json.loads(result.stdout.splitlines()[-1])


def test_the_last_line_is_json_with_all_that_was_measured(answer: dict[str, Any]) -> None:
    assert answer.keys() == KEYS | {"row"}
    assert all(answer[key] > 0 for key in KEYS)
    # Four points of 576 values of two bytes.
    assert answer["bytes_per_s"] == pytest.approx(answer["tokens_per_s"] * 4 * 576 * 2, rel=1e-3)
    assert answer["ratio"] == pytest.approx(
        answer["tokens_per_s"] / answer["plain_tokens_per_s"], rel=1e-3
    )


def test_detectors_take_less_than_a_hundredth_of_the_time(answer: dict[str, Any]) -> None:
    assert answer["detectors_share"] < 0.01


def test_the_scoreboard_has_a_row_of_it(answer: dict[str, Any]) -> None:
    cells = [cell.strip() for cell in answer["row"].strip("|").split("|")]
    assert cells[3:6] == ["smollm2", "8 x 256", "512"]
    assert cells[8] == f"{answer['tokens_per_s']:,.0f}"


def test_a_road_that_there_is_not(tmp_path: Path) -> None:
    result = CliRunner().invoke(bench_extract, ["--roads", "ours,scenic", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "--roads takes plain, old, ours, unchecked" in result.stderr
    assert not list(tmp_path.iterdir())
