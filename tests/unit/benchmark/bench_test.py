"""The bench of training: what it reports, and what it does without a peer."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from eagle3.bench_train import bench_train
from eagle3.benchmark.training import report
from eagle3.benchmark.training.measure import Measurement, measure
from eagle3.benchmark.training.peer import PeerMeasurement, measure_peer
from eagle3.benchmark.training.shape import BenchShape
from eagle3.draft.config import DraftConfig

# Tensors so small that threads would only wait for each other.
torch.set_num_threads(1)

CPU = torch.device("cpu")
TINY = BenchShape(DraftConfig(40, 16, 16, 24, 4, 2, 8, 64, (1, 2, 3)), 32, 8, 2)
KEYS = {
    "tokens_per_s",
    "baseline",
    "baseline_tokens_per_s",
    "ratio",
    "mfu",
    "peak_gib",
    "compile_s",
}


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report.BenchShape, "small", lambda **_: TINY)


def invoke(*flags: str) -> Result:
    result = CliRunner().invoke(bench_train, ["--json", "--rounds", "1", *flags])
    assert result.exit_code == 0, result.output
    return result


def answer_of(result: Result) -> dict[str, Any]:
    return json.loads(result.stdout.splitlines()[-1])


def run(*flags: str) -> dict[str, Any]:
    return answer_of(invoke(*flags))


def test_the_last_line_is_json() -> None:
    answer = run("--no-baseline", "--shape", "small")
    assert answer.keys() >= KEYS
    assert answer["tokens_per_s"] > 0
    assert answer["tokens"] == TINY.tokens
    assert {answer[key] for key in ("baseline", "ratio", "mfu", "peak_gib")} == {None}


def test_the_ratio_is_to_the_named_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = PeerMeasurement("0.9.0", Measurement(0.5, 1.0, None, 0.0, 0.0))
    monkeypatch.setattr(report, "measure_peer", lambda *_: peer)
    answer = run("--shape", "small")
    assert answer["baseline"] == "speculators 0.9.0"
    assert answer["ratio"] == answer["tokens_per_s"] / 0.5


def test_of_several_peers_the_ratio_is_to_the_fastest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is slower, and the third cannot be measured."""
    speeds = {"new": ("0.9.0", 0.5), "old": ("0.3.0", 0.25)}

    def of_site(_shape: object, site: Path, *_: object) -> PeerMeasurement | str:
        if site.name == "broken":
            return "broken on purpose"
        version, speed = speeds[site.name]
        return PeerMeasurement(version, Measurement(speed, 1.0, None, 0.0, 0.0))

    monkeypatch.setattr(report, "measure_peer", of_site)
    flags = []
    for name in ("old", "broken", "new"):
        (tmp_path / name).mkdir()
        flags += ["--baseline-site", str(tmp_path / name)]
    result = invoke("--shape", "small", *flags)
    answer = answer_of(result)
    assert answer["baseline"] == "speculators 0.9.0"
    assert answer["ratio"] == answer["tokens_per_s"] / 0.5
    ratios = {peer["name"]: peer["ratio"] for peer in answer["baselines"]}
    assert ratios == {
        "speculators 0.9.0": answer["ratio"],
        "speculators 0.3.0": 2 * answer["ratio"],
    }
    assert answer["baselines_failed"] == ["broken on purpose"]
    for what in ("speculators, old", "speculators, broken", "speculators, new", "ours"):
        assert f"measuring {what}: done in " in result.stderr


def test_without_a_peer_ours_is_measured_and_the_reason_told(tmp_path: Path) -> None:
    """Whatever stands first on the path wins: here a package that is broken."""
    (tmp_path / "speculators.py").write_text("raise ImportError('broken on purpose')\n")
    reason = measure_peer(TINY, tmp_path, CPU, 1)
    assert isinstance(reason, str)
    assert "broken on purpose" in reason
    answer = run("--shape", "small", "--baseline-site", str(tmp_path))
    assert answer["ratio"] is None
    assert "broken on purpose" in answer["baseline"]


def test_a_baseline_folder_that_does_not_exist() -> None:
    result = CliRunner().invoke(bench_train, ["--baseline-site", "/nowhere"])
    assert result.exit_code == 2
    assert "no folder /nowhere" in result.stderr


def test_it_needs_few_packages() -> None:
    """It is run beside other releases of torch, too, on machines without this stack."""
    program = (
        "import sys\n"
        "sys.modules |= dict.fromkeys(('msgspec', 'pyarrow', 'transformers', 'vllm', 'yaml'))\n"
        "import eagle3.bench_train, eagle3.benchmark.training.report\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--profile", "/nowhere/profile.txt"], "no folder /nowhere for --profile"),
        (["--fp8"], "--fp8 needs a GPU that multiplies in fp8"),
    ],
)
def test_what_cannot_be_measured_is_refused(flags: list[str], message: str) -> None:
    result = CliRunner().invoke(bench_train, ["--no-baseline", *flags])
    assert result.exit_code == 2
    assert message in result.stderr


def test_the_profile_names_what_took_the_time(tmp_path: Path) -> None:
    run("--no-baseline", "--shape", "small", "--profile", str(tmp_path / "profile.txt"))
    assert "aten::mm" in (tmp_path / "profile.txt").read_text()


def test_both_packings_fill_all_rows() -> None:
    equal, other = TINY.batches(CPU)
    assert equal.document_T.tolist() == [row // 8 for row in range(32)]
    assert other.document_T.tolist() == [0] * 4 + [1] * 8 + [2] * 8 + [3] * 8 + [4] * 4
    assert other.position_T.tolist()[3:6] == [3, 0, 1]


@pytest.mark.parametrize("tokens", [1, 3, 20, 37])
def test_any_number_of_rows_is_filled(tokens: int) -> None:
    for batch in dataclasses.replace(TINY, tokens=tokens).batches(CPU):
        assert len(batch.document_T) == len(batch.position_T) == tokens
        assert batch.document_T.tolist() == sorted(batch.document_T.tolist())


def test_only_the_later_steps_are_timed() -> None:
    seen: list[int] = []

    def step(number: int) -> torch.Tensor:
        seen.append(number)
        return torch.tensor(float(number))

    measured = measure(step, 100, CPU, rounds=2)
    assert seen == list(range(6))
    assert measured.loss == 5.0
    assert measured.tokens_per_s == pytest.approx(100 / measured.step_ms * 1e3)


def test_a_peer_that_takes_too_long_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eagle3.benchmark.training.peer._TIMEOUT_S", 0.001)
    assert measure_peer(TINY, tmp_path, CPU, 1) == f"{tmp_path} was not done after 0 s"
