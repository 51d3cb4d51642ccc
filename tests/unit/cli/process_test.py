"""What only a process of its own shows: streams, signals, the time to the first line."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eagle3.store.reader import StoreReader
from tests.unit.tiny_target import make_target


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    make_target(tmp_path / "target")
    lines = "".join(json.dumps({"input_ids": [token]}) + "\n" for token in range(60))
    (tmp_path / "data.jsonl").write_text(lines)
    return tmp_path


def start(desk: Path, engine: str, *arguments: str) -> subprocess.Popen[str]:
    program = Path(__file__).with_name("extract_with_fake_engine.py")
    return subprocess.Popen(
        [sys.executable, program, engine, "--model", "target", "--data", "data.jsonl", *arguments],
        cwd="/",
        env={
            **os.environ,
            "BUILD_WORKING_DIRECTORY": str(desk),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_stdout_holds_the_result_and_stderr_plain_lines(desk: Path) -> None:
    process = start(desk, "FakeEngine", "--json")
    stdout, stderr = process.communicate()
    assert process.returncode == 0, stderr
    assert json.loads(stdout)["samples"] == 60
    assert stdout.count("\n") == 1
    assert "noise of a library" in stderr
    assert "noise of a worker process" in stderr
    assert "extracting: 60/60 samples" in stderr
    assert "\r" not in stderr
    assert "\x1b" not in stderr


def test_a_failure_is_one_line_and_its_exit_code(desk: Path) -> None:
    process = start(desk, "FailingEngine", "--max-tokens-per-step", "8")
    stdout, stderr = process.communicate()
    assert process.returncode == 3, stderr
    assert stdout == ""
    assert "Traceback" not in stderr
    assert stderr.splitlines()[-1].startswith("error: the target stopped answering")


@pytest.mark.parametrize(
    ("number", "code", "last"),
    [
        (signal.SIGINT, 130, "error: interrupted"),
        (signal.SIGTERM, 143, "error: ended by SIGTERM"),
    ],
)
def test_a_signal_keeps_what_is_committed(desk: Path, number: int, code: int, last: str) -> None:
    process = start(desk, "SlowEngine", "--max-tokens-per-step", "1")
    journal = desk / "eagle3-out" / "shard-00000.journal"
    while not (journal.exists() and journal.stat().st_size) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    stdout, stderr = process.communicate()
    assert process.returncode == code, stderr
    assert stdout == ""
    assert "Traceback" not in stderr
    store = StoreReader(desk / "eagle3-out")
    assert 0 < len(store.ids) < 60
    *_, committed, end = stderr.splitlines()
    assert committed.startswith(f"out: {len(store.ids)} of 60 samples are committed")
    assert end == last
    for sample_id in store.ids:
        assert len(store.read(sample_id)[0].input_ids) == 1


def test_the_first_line_does_not_wait_for_heavy_imports() -> None:
    heavy = "{'torch', 'transformers', 'vllm', 'speculators'} & sys.modules.keys()"
    result = subprocess.run(
        [sys.executable, "-c", f"import sys, eagle3.extract; print({heavy})"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "set()"


def test_a_command_ends_without_a_last_look_for_garbage() -> None:
    script = (
        "import atexit, click, gc; from eagle3.command import Command, run; "
        "atexit.register(lambda: click.echo(gc.get_freeze_count() > 0)); "
        "run(Command('nothing', callback=lambda: None))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "True\n"
