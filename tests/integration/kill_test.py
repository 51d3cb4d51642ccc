"""kill -9 of the command or of its worker, and Ctrl-C, with the real engine: what was committed
stays, byte for byte, and the next run goes on."""

import contextlib
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

# Twice as many as the last kill waits for: what is left must take longer than a kill.
SAMPLES = 120
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
            "--no-preflight",
        ]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONSAFEPATH": "1",
            "TMPDIR": str(self._folder),
        }
        return subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            # A terminal sends Ctrl-C to all processes of a command, and this test is none of them.
            start_new_session=True,
        )

    def run(self, out: Path) -> None:
        """Runs to the end."""
        process = self.start(out)
        _, said = process.communicate()
        assert process.returncode == 0, said


def wait_for_samples(process: subprocess.Popen[str], out: Path, samples: int) -> None:
    """Waits until so many samples are written, whether committed or in a shard in work."""
    while process.poll() is None:
        notes = [out / "index.jsonl", *out.glob("shard-*.journal")]
        with contextlib.suppress(FileNotFoundError):
            lines = b"".join(path.read_bytes() for path in notes).splitlines(keepends=True)
            # While a shard is committed, its samples stand in its journal and in the index.
            if len({line for line in lines if line.endswith(b"\n")}) >= samples:
                return
        time.sleep(0.005)
    raise AssertionError("the run ended before it was killed")


def workers(command: psutil.Process) -> list[psutil.Process]:
    """The worker processes among those of `command`, some of which end while this looks."""
    found = []
    for process in command.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "resource_tracker" not in " ".join(process.cmdline()):
                found.append(process)
    return found


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
def whole(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that nothing interrupted."""
    out = tmp_path_factory.mktemp("out") / "whole"
    desk.run(out)
    return out


@pytest.mark.parametrize("victim", ["command", "worker"])
def test_a_kill_loses_nothing_committed(
    victim: str, desk: Desk, whole: Path, tmp_path: Path
) -> None:
    chance = random.Random(victim)
    out = tmp_path / "out"
    committed: dict[str, bytes] = {}
    # The second kill meets a run that goes on where the first one was killed.
    for samples in (chance.randint(1, 30), chance.randint(31, 60)):
        process = desk.start(out)
        wait_for_samples(process, out, samples)
        family = psutil.Process(process.pid).children(recursive=True)
        [worker] = workers(psutil.Process(process.pid))
        os.kill(process.pid if victim == "command" else worker.pid, signal.SIGKILL)
        _, said = process.communicate()
        if victim == "worker":
            assert process.returncode == 3, said
            assert "error: the target failed in a step of data.jsonl:" in said
            assert "a worker process died (exit code -9)" in said
        # Nobody is left who could write.
        assert psutil.wait_procs(family, timeout=60)[1] == []
        found = bytes_of(out)
        assert committed.items() <= found.items()
        committed = found
    desk.run(out)
    found = bytes_of(out)
    assert committed.items() <= found.items()
    assert found.keys() == bytes_of(whole).keys()
    assert len(found) == SAMPLES
    # Other prompts share a step in another run, so bfloat16 may round another way.
    ours, theirs = StoreReader(out), StoreReader(whole)
    for sample_id in found:
        one, other = ours.read(sample_id)[1].float(), theirs.read(sample_id)[1].float()
        assert torch.nn.functional.cosine_similarity(one, other, dim=-1).min() > 0.997


@pytest.mark.parametrize("moment", ["loading", "extraction"])
def test_ctrl_c_loses_nothing_that_was_written_and_leaves_no_process(
    moment: str, desk: Desk, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = desk.start(out)
    command = psutil.Process(process.pid)
    if moment == "extraction":
        wait_for_samples(process, out, 20)
    else:
        while not workers(command) and process.poll() is None:
            time.sleep(0.005)
    family = command.children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "error: interrupted"
    assert "Traceback" not in said
    assert psutil.wait_procs(family, timeout=60)[1] == []
    if moment == "extraction":
        assert 20 <= len(bytes_of(out)) < SAMPLES
        assert f"out: {len(bytes_of(out))} of {SAMPLES} samples are committed" in said
    else:
        assert not out.exists()
