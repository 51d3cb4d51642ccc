"""The command as its user meets it."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eagle3.evaluate import evaluate
from eagle3.train import train
from eagle3.training.checkpoint import newest_checkpoint
from tests.unit.training.tiny_run import HIDDEN_SIZE, make_store, make_world

CONFIG = """\
data: {store: store, tokens_per_step: 64, validation_share: 0.2}
draft: {draft_vocab: 16}
unroll: {unroll_steps: 3}
optimizer: {learning_rate: 0.01}
schedule: {max_steps: 12}
run: {checkpoint_every: 4, log_every: 2, readers: 1}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (make_world(tmp_path) / "train.yaml").write_text(CONFIG)
    return tmp_path


def run(desk: Path, *arguments: str) -> Result:
    # The process stands elsewhere, as it does under `bazel run`.
    environment = {"BUILD_WORKING_DIRECTORY": str(desk)}
    fixed = ["--config", "train.yaml", *arguments]
    return CliRunner(env=environment).invoke(train, fixed)


def test_the_last_lines_tell_what_it_is_worth_and_what_comes_next(desk: Path) -> None:
    result = run(desk)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "steps     12"
    assert lines[-3].startswith("simulated acceptance length on held-out samples: 1.")
    assert lines[-1] == f"  tools/bazel run //eagle3:evaluate -- --draft {desk}/eagle3-draft/draft"
    assert (desk / "eagle3-draft" / "draft" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("extracted", "options"),
    [
        ("extract --model /models/k --tp 8 --trust-remote-code", " --tp 8 --trust-remote-code"),
        ("extract --tp=2 --data '/my data/--tp' --layers 2,4", " --tp 2"),
        ("extract --shard 0/2 --prefetch", ""),
    ],
)
def test_the_next_command_runs_the_target_as_it_was_extracted(
    desk: Path, extracted: str, options: str
) -> None:
    manifest = desk / "store" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"command": extracted}))
    *_, last = run(desk).stdout.splitlines()
    assert last.endswith(f"//eagle3:evaluate -- --draft {desk}/eagle3-draft/draft{options}")
    words = shlex.split(last.partition(" -- ")[2])
    assert evaluate.make_context("evaluate", words).params["draft"].startswith(str(desk))


def test_progress_tells_data_draft_and_steps(desk: Path) -> None:
    lines = run(desk).stderr.splitlines()
    assert lines[0] == f"train: a draft from {desk}/store into {desk}/eagle3-draft"
    assert any(
        line.startswith("data: ") and line.endswith("held out by --validation-share")
        for line in lines
    )
    assert any(
        line.startswith(f"draft: hidden {HIDDEN_SIZE}, points 2, 4, 5, vocab") for line in lines
    )
    assert any(line.startswith("step 12/12, loss ") for line in lines)


def test_samples_that_lose_their_context_are_told(desk: Path) -> None:
    """Samples have 8 to 40 tokens, and the step is shared by so many batches."""
    whole = run(desk, "--dry-run").stderr
    assert "in 1 batches of 64, " in whole
    assert "split" not in whole
    split = run(desk, "--dry-run", "--batches-per-step", "4").stderr
    [line] = [line for line in split.splitlines() if "samples are split" in line]
    assert "since a batch has 16 tokens" in line
    [enough] = re.findall(r"--tokens-per-step (\d+)", line)
    enough = ["--tokens-per-step", enough, "--batches-per-step", "4"]
    assert "split" not in run(desk, "--dry-run", *enough).stderr


def test_json_is_one_line_and_all_of_stdout(desk: Path) -> None:
    result = run(desk, "--json", "--no-export", "--out", "there")
    report = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert report["out"] == str(desk / "there")
    assert report["draft"] is None
    assert report["after"] > report["before"]
    assert not (desk / "there" / "draft").exists()


def test_a_dry_run_writes_nothing(desk: Path) -> None:
    before = sorted(desk.rglob("*"))
    result = run(desk, "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert "steps         12, 768 tokens" in result.stdout
    assert "memory        about " in result.stdout
    needs = json.loads(run(desk, "--dry-run", "--json").stdout)
    assert needs["bytes"]["total"] == sum(needs["bytes"].values()) - needs["bytes"]["total"]
    assert sorted(desk.rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--store", "nowhere"], 4, "nowhere holds no states: there is no manifest.json"),
        (["--model", "nowhere"], 2, "no model nowhere: neither a shipped model (smollm2) nor"),
        (["--learning-rate", "fast"], 2, "optimizer.learning_rate: expected `float`"),
        (["--config", "nowhere.yaml"], 2, "cannot read "),
        (["--out", "target"], 4, "is not empty and holds no run; give another --out"),
        (["--out", "/proc/draft"], 4, "cannot write to /proc/draft"),
        (["--store", "three"], 2, "a draft needs three, and 8 as the last"),
        (["--track", "wandb"], 2, "--track wandb needs the package wandb"),
        (["--fp8"], 2, "--fp8 needs a GPU that multiplies in fp8"),
        (["--batches-per-step", "5"], 2, "is not a multiple of --batches-per-step 5"),
    ],
)
def test_what_cannot_work_is_one_line_and_nothing_is_written(
    desk: Path, arguments: list[str], code: int, message: str
) -> None:
    make_store(desk / "three", desk / "target", points=(2, 4, 5))
    before = sorted(desk.rglob("*"))
    result = run(desk, *arguments)
    assert result.exit_code == code, result.stderr
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert message in last
    assert "Traceback" not in result.stderr
    assert sorted(desk.rglob("*")) == before


def test_without_arguments_the_shipped_configuration_counts_on_a_cpu(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shipped(path: str) -> Path:
        assert path == "examples/train_on_cpu.yaml"
        return desk / "train.yaml"

    monkeypatch.setattr("eagle3.train.shipped_path", shipped)
    environment = {"BUILD_WORKING_DIRECTORY": str(desk)}
    result = CliRunner(env=environment).invoke(train, ["--dry-run", "--max-steps", "3"])
    assert result.exit_code == 0, result.stderr
    assert "steps         3, 192 tokens" in result.stdout


def test_sigterm_ends_the_process_with_a_checkpoint(desk: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "eagle3.train", "--config", "train.yaml", "--max-steps", "100000"],
        env={
            **os.environ,
            "BUILD_WORKING_DIRECTORY": str(desk),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out = desk / "eagle3-draft"
    while newest_checkpoint(out) is None and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate()
    assert process.returncode == 143, stderr
    assert stdout == ""
    assert "Traceback" not in stderr
    last = stderr.splitlines()[-1]
    newest = newest_checkpoint(out)
    assert newest is not None
    assert f"stopped by SIGTERM after step {int(newest.name[5:]):,}; the same command" in last


def command(desk: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eagle3.train", "--config", "train.yaml", *arguments],
        env={
            **os.environ,
            "BUILD_WORKING_DIRECTORY": str(desk),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
        capture_output=True,
        text=True,
    )


def test_processes_are_started_and_one_speaks(desk: Path) -> None:
    result = command(desk, "--processes", "2", "--json", "--tokens-per-step", "128")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["steps"] == 12
    assert result.stderr.count("step 12/12") == 1
    assert "in 2 batches" in result.stderr
    failed = command(desk, "--processes", "2", "--batches-per-step", "3")
    assert failed.returncode == 2
    assert "2 processes cannot share 3 batches a step" in failed.stderr


def test_the_first_line_does_not_wait_for_heavy_imports() -> None:
    heavy = "{'torch', 'transformers', 'vllm', 'speculators'} & sys.modules.keys()"
    result = subprocess.run(
        [sys.executable, "-c", f"import sys, eagle3.train; print({heavy})"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "set()"
