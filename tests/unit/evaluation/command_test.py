"""The command as its users meet it."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eagle3.errors import EngineError
from eagle3.evaluate import evaluate
from eagle3.evaluation.acceptance import Acceptance
from eagle3.evaluation.report import Divergence, EvaluationReport, Result
from eagle3.serve import serve
from tests.unit.evaluation.tiny import export, make_llama
from tests.unit.tiny_target import make_target

# Frozen: a change is seen here, and told in docs/evaluate.md.
OPTIONS = {
    "--backend": "auto",
    "--batches": (1, 8, 32),
    "--beside": {},
    "--data": "heldout",
    "--draft": "./eagle3-draft/draft",
    "--gpu-memory-utilization": 0.8,
    "--help": False,
    "--json": False,
    "--max-new-tokens": 64,
    "--model": None,
    "--preflight": True,
    "--prompts": 16,
    "--reasoning": None,
    "--seed": 0,
    "--shuffled": None,
    "--speculative-tokens": 5,
    "--speed": True,
    "--temperature": 1.0,
    "--tp": 1,
    "--trust-remote-code": False,
    "--verbose": False,
    "-v": False,
}
DATA = ["--data", "data.jsonl"]


def test_the_options_are_the_frozen_ones() -> None:
    context = evaluate.make_context("evaluate", [])
    found = {
        name: context.params.get(str(option.name), False)
        for option in evaluate.get_params(context)
        for name in option.opts
    }
    assert found == OPTIONS


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "eagle3.evaluate", *map(str, arguments)]
    # Over matrices this small, threads only wait for each other.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_the_last_line_is_json_and_the_only_one_on_stdout(tmp_path: Path) -> None:
    model = make_target(tmp_path / "model")
    make_llama(model, 300)
    export(model, 100, tmp_path / "draft")
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps({"input_ids": [3, 4, 5, 6], "loss_mask": [0, 0, 0, 1]}) + "\n")
    options = ["--draft", tmp_path / "draft", "--data", data, "--max-new-tokens", 4, "--json"]
    result = run(*options)
    assert result.returncode == 0, result.stderr
    [line] = result.stdout.splitlines()
    figures = json.loads(line)
    assert figures.keys() >= {
        "acceptance_length",
        "floor_acceptance_length",
        "lossless",
        "per_position",
    }
    assert figures["lossless"] is True
    assert "draft, greedy" in result.stderr
    # Each pass tells what it found when it has ended, not the table alone.
    said = result.stderr
    length = f"acceptance length {figures['acceptance_length']:.3f}"
    assert said.index("the target alone: ") < said.index(f"draft: {length}")
    assert said.index(f"draft: {length}") < said.index("untrained: acceptance length 1.")


def report_of(steps: tuple[int, ...], floor: tuple[int, ...], **fields: Any) -> EvaluationReport:
    return EvaluationReport(
        backend="vllm",
        device="cuda",
        prompts=1,
        speculative_tokens=1,
        greedy=Result({"all": Acceptance(steps)}, {}),
        sampled=None,
        temperature=0.0,
        floors={"untrained": Result({"all": Acceptance(floor)}, {})},
        alone_tokens_per_s={},
        **fields,
    )


def test_what_failed_beside_the_draft_fails_the_command_after_its_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of((1, 3), (4, 0), failed={"other": "the target model did not start"})
    monkeypatch.setattr("eagle3.evaluation.evaluate.evaluate", lambda *_: report)
    with pytest.raises(SystemExit) as ended:
        evaluate.main([*DATA, "--json"])
    assert ended.value.code == EngineError.exit_code
    said = capsys.readouterr()
    figures = json.loads(said.out)
    assert figures["acceptance_length"] == 1.75
    assert figures["failed"] == {"other": "the target model did not start"}
    assert said.err.endswith("error: not measured: other (the report says why)\n")


def test_a_draft_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    result = run("--draft", tmp_path / "nowhere", "--data", tmp_path / "data.jsonl")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith(f"error: no draft in {tmp_path / 'nowhere'}; ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("given", "served"),
    [
        (["--speculative-tokens", "3"], ["--speculative-tokens", "3"]),
        (
            ["--model", ".", "--tp", "8", "--trust-remote-code"],
            [
                *("--speculative-tokens", "5", "--model", "{here}"),
                *("--", "--trust-remote-code", "--tensor-parallel-size", "8"),
            ],
        ),
    ],
)
def test_a_draft_that_wins_is_told_how_to_serve(
    given: list[str],
    served: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    report = report_of((100, 300), (400, 0))
    monkeypatch.setattr("eagle3.evaluation.evaluate.evaluate", lambda *_: report)
    told = CliRunner().invoke(evaluate, [*DATA, "--draft", "my draft", *given]).stdout.splitlines()
    assert told[-2] == "next: serve it, on a GPU"
    command, _, words = told[-1].strip().partition(" -- ")
    assert command == "tools/bazel run --config=cuda128 //eagle3:serve"
    expected = [word.format(here=tmp_path) for word in served]
    assert shlex.split(words) == ["--draft", str(tmp_path / "my draft"), *expected]
    context = serve.make_context("serve", shlex.split(words))
    assert context.params["draft"] == str(tmp_path / "my draft")


@pytest.mark.parametrize(
    ("floor", "fields"),
    [
        ((100, 300), {}),
        ((400, 0), {"divergences": (Divergence("data:1", 0, 1.0),)}),
    ],
)
def test_a_draft_that_does_not_win_or_changes_the_output_is_not_to_be_served(
    floor: tuple[int, ...], fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = report_of((100, 300), floor, **fields)
    monkeypatch.setattr("eagle3.evaluation.evaluate.evaluate", lambda *_: report)
    told = CliRunner().invoke(evaluate, DATA).stdout
    assert "lossless" in told
    assert "serve" not in told
