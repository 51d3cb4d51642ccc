"""kill -9 of the command or of its worker, with the real engine: what was committed stays, byte for
byte, and the next run goes on."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from eagle3.store.reader import StoreReader
from tests.integration.prompts import random_prompts
from tests.integration.tiny_models import VOCAB_SIZE, make_llama

SAMPLES = 150
SCRIPT = """
from eagle3.command import run
from eagle3.extract import extract

if __name__ == "__main__":
    run(extract)
"""


class Desk:
    """A target, data, and a command to run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._script = folder / "run_extract.py"
        self._script.write_text(SCRIPT)
        self._model = make_llama(folder / "llama")
        chance = random.Random(0)
        prompts = random_prompts([chance.randint(1, 400) for _ in range(SAMPLES)], VOCAB_SIZE)
        lines = [json.dumps({"input_ids": prompt}) for prompt in prompts]
        (folder / "data.jsonl").write_text("\n".join(lines))

    def start(self, out: Path) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-s",
            str(self._script),
            *("--model", str(self._model)),
            *("--data", str(self._folder / "data.jsonl")),
            *("--out", str(out)),
            *("--max-tokens-per-step", "128"),
            *("--shard-size", "1MiB"),
        ]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONSAFEPATH": "1",
            "TMPDIR": str(self._folder),
        }
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)

    def run(self, out: Path) -> float:
        """Runs to the end; the seconds after the start of the target."""
        process = self.start(out)
        began = wait_for_start(process)
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait() == 0, said
        return time.monotonic() - began


def wait_for_start(process: subprocess.Popen[str]) -> float:
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("starting the target: done"):
            return time.monotonic()
    raise AssertionError("the target did not start")


def bytes_of(out: Path) -> dict[str, bytes]:
    store = StoreReader(out)
    return {
        sample_id: store.read(sample_id)[1].clone().view(torch.uint8).numpy().tobytes()
        for sample_id in store.ids
    }


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(tmp_path_factory.mktemp("desk"))


@pytest.fixture(scope="module")
def whole(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A store that nothing interrupted, and the seconds that it took."""
    out = tmp_path_factory.mktemp("out") / "whole"
    return out, desk.run(out)


@pytest.mark.parametrize("victim", ["command", "worker"])
def test_a_kill_loses_nothing_committed(
    victim: str, desk: Desk, whole: tuple[Path, float], tmp_path: Path
) -> None:
    expected, seconds = whole
    chance = random.Random(victim)
    out = tmp_path / "out"
    committed: dict[str, bytes] = {}
    for _ in range(2):
        process = desk.start(out)
        began = wait_for_start(process)
        family = psutil.Process(process.pid).children(recursive=True)
        workers = [child for child in family if "resource_tracker" not in " ".join(child.cmdline())]
        time.sleep(chance.uniform(0.2, 0.8) * seconds)
        os.kill(process.pid if victim == "command" else workers[0].pid, signal.SIGKILL)
        code = process.wait(timeout=60)
        assert process.stderr is not None
        if time.monotonic() - began < seconds and code != 0 and victim == "worker":
            assert "error: the target failed in a step of data.jsonl:" in process.stderr.read()
            assert code == 3
        process.stderr.close()
        assert psutil.wait_procs(family, timeout=60)[1] == []
        if (out / "manifest.json").exists():
            found = bytes_of(out)
            assert committed.items() <= found.items()
            committed = found
    desk.run(out)
    found = bytes_of(out)
    assert committed.items() <= found.items()
    assert found.keys() == bytes_of(expected).keys()
    assert len(found) == SAMPLES
    # Other prompts share a step in another run, so bfloat16 may round another way.
    ours, theirs = StoreReader(out), StoreReader(expected)
    for sample_id in found:
        one, other = ours.read(sample_id)[1].float(), theirs.read(sample_id)[1].float()
        assert torch.nn.functional.cosine_similarity(one, other, dim=-1).min() > 0.997
