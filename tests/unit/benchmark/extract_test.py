"""The bench of extraction: what is refused before it measures, and what is kept when it has."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eagle3 import bench_extract as command
from eagle3.benchmark.extraction import measure as measuring
from eagle3.benchmark.extraction import roads
from eagle3.benchmark.extraction.measure import Figures, measure
from eagle3.benchmark.extraction.roads import PassTimes
from eagle3.benchmark.extraction.workload import Workload
from eagle3.engine.options import EngineOptions
from eagle3.progress import Progress
from tests.unit.tiny_target import make_target

LAYERS = ("--layers", "0,1")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return make_target(tmp_path / "target")


def make_workload(tmp_path: Path) -> Workload:
    return Workload(EngineOptions(tmp_path, (1,)), 100, 8, 1, 4, 1, tmp_path)


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(command.bench_extract, [*LAYERS, *arguments])


def test_a_scratch_folder_that_cannot_be_is_told(target: Path) -> None:
    result = bench("--model", str(target), "--out", str(target / "config.json" / "scratch"))
    assert result.exit_code == 4
    assert "error: cannot write to " in result.stderr
    assert "give another --out" in result.stderr


def test_what_the_engine_refuses_is_a_wrong_option(target: Path) -> None:
    result = bench("--model", str(target), "--ring-size", "1")
    assert result.exit_code == 2
    assert "error: the ring must have " in result.stderr


def test_a_scoreboard_that_cannot_be_written_costs_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = Figures(make_workload(tmp_path), "a device", {"plain": [123.0]}, 0, [], [])
    monkeypatch.setattr(command, "_measure", lambda *_, **__: figures)
    result = bench("--append", str(tmp_path))
    assert result.exit_code == 4
    assert "123 tokens/s" in result.stdout


def test_a_pass_of_no_time_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roads, "time_road", lambda *_: [PassTimes(0.001, 0.0, 0.0)])
    monkeypatch.setattr(roads, "device_name", lambda: "a device")
    monkeypatch.setattr(measuring, "run_apart", lambda call, *given: (call(*given), 0))
    figures = measure(make_workload(tmp_path), ["ours"], 1, Progress())
    assert figures.rate("ours") == 4000
    assert figures.detectors_share is None
    assert figures.detectors_bytes_per_s is None
