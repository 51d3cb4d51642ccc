"""kill -9 of any process of an extraction with the real engine, at random moments, N times.

Every sample fills a step, so that what a step holds does not depend on what was done before: the
resumed store must equal an uninterrupted one byte by byte.
"""

import hashlib
import json
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
import psutil
import torch

from eagle3.store.reader import StoreReader
from tests.integration.commands import start_command
from tests.integration.prompts import random_prompts
from tests.integration.tiny_models import VOCAB_SIZE, make_llama

SAMPLES = 160
TOKENS = 128  # of a sample, and of a step
_KILLS_OF_A_STORE = 5
# Long enough for a worker to notice that its command is gone.
_SECONDS_TO_END = 60

# A phase of the run, and the process that is killed in it.
Kill = tuple[str, str]


class Kills:
    """A target and data in `folder`, an uninterrupted store, and stores that are not left alone.

    `met` counts the kills by the phase of the run and the process that was killed, and `resumed`
    the stores of which a part was there when they were left to end.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._chance = random.Random(seed)
        self.met: Counter[Kill] = Counter()
        self.resumed = 0
        make_llama(folder / "llama")
        prompts = random_prompts([TOKENS] * SAMPLES, VOCAB_SIZE)
        lines = [json.dumps({"input_ids": prompt}) for prompt in prompts]
        (folder / "data.jsonl").write_text("\n".join(lines))
        began = time.monotonic()
        process = self._start(folder / "whole")
        while not (folder / "whole" / "manifest.json").exists() and process.poll() is None:
            time.sleep(0.01)
        self._seconds_to_start = time.monotonic() - began
        self._end(process, 0)
        self._whole = self._contents(folder / "whole")
        assert len(self._whole) == SAMPLES

    def kill(self, count: int, wanted: Sequence[Kill] = ()) -> None:
        """Kills `count` times; each store is resumed, killed again, and in the end compared.

        The first kills are those `wanted`, each tried until it is met, and chance has the others.
        """
        while self.met.total() < count:
            out = self._folder / "killed"
            committed: set[str] = set()
            for _ in range(min(_KILLS_OF_A_STORE, count - self.met.total())):
                met = self.met.total()
                self._kill_once(out, wanted[met] if met < len(wanted) else None)
                found = self._contents(out)
                # Nothing that was committed is lost, nothing half-written is seen.
                assert committed <= found.keys()
                assert found.items() <= self._whole.items()
                committed = set(found)
                click.echo(f"{self.met.total():>5} kills, {len(found):>4} samples", err=True)
                if len(found) == SAMPLES:
                    break
            self.resumed += 0 < len(committed) < SAMPLES
            self._end(self._start(out), 0)
            assert self._contents(out) == self._whole
            names = {path.name for path in out.glob("shard-*")}
            assert names == set(StoreReader(out).shards), "something is left of a shard"
            shutil.rmtree(out)

    def _kill_once(self, out: Path, wanted: Kill | None) -> None:
        """Starts the run and kills one of its processes, if it did not end before."""
        process = self._start(out)
        # While it imports and loads, while it extracts, or while it commits a shard and ends.
        phase = self._chance.choice(["start", "extraction", "extraction", "commit"])
        if wanted:
            phase = wanted[0]
        if phase == "start":
            self._wait_until(process, self._chance.uniform(0, self._seconds_to_start))
        elif phase == "extraction":
            noted = _noted(out) + self._chance.randint(1, SAMPLES // (_KILLS_OF_A_STORE + 1))
            while _noted(out) < noted and process.poll() is None:
                time.sleep(0.005)
        else:
            shards = _shards(out)
            while _shards(out) == shards and process.poll() is None:
                time.sleep(0.002)
        time.sleep(self._chance.uniform(0, 0.02))
        if process.poll() is not None:
            self._end(process, 0)
            return
        command = psutil.Process(process.pid)
        family = {"command": command} | {_name(c): c for c in command.children(recursive=True)}
        # Nobody misses the resource tracker, so the run ends as if nothing had been.
        weights = [1 if name == "resource tracker" else 8 for name in family]
        [name] = self._chance.choices(list(family), weights)
        if wanted:
            name = wanted[1]
        try:
            family[name].send_signal(signal.SIGKILL)
        except (psutil.NoSuchProcess, KeyError):
            # It has just ended, and the run will.
            self._end(process, 0)
            return
        process.communicate()
        if process.returncode == 0 and name != "resource tracker":
            # It had just ended, and nobody had asked for its exit code yet.
            assert self._contents(out) == self._whole
            return
        # Nobody is left who could write.
        left = psutil.wait_procs(list(family.values()), timeout=_SECONDS_TO_END)[1]
        assert not left, f"{name} was killed in {phase}, and {left} are still there"
        self.met[phase, name] += 1

    def _wait_until(self, process: subprocess.Popen[str], seconds: float) -> None:
        began = time.monotonic()
        while time.monotonic() - began < seconds and process.poll() is None:
            time.sleep(0.005)

    def _start(self, out: Path) -> subprocess.Popen[str]:
        arguments = ["--model", str(self._folder / "llama")]
        arguments += ["--data", str(self._folder / "data.jsonl"), "--out", str(out)]
        arguments += ["--max-tokens-per-step", str(TOKENS), "--shard-size", "4MiB"]
        return start_command("extract", [*arguments, "--no-preflight"])

    def _end(self, process: subprocess.Popen[str], expected: int) -> None:
        _, said = process.communicate()
        assert process.returncode == expected, said

    def _contents(self, out: Path) -> dict[str, bytes]:
        """A digest of the states of every committed sample, each checked against its checksum."""
        if not (out / "manifest.json").exists():
            return {}
        store = StoreReader(out)
        return {
            sample_id: hashlib.sha256(store.read(sample_id)[1].view(torch.uint8).numpy()).digest()
            for sample_id in store.ids
        }


def _noted(out: Path) -> int:
    """Samples that are written, whether committed or in a shard in work."""
    noted: set[bytes] = set()
    for path in [out / "index.jsonl", *out.glob("shard-*.journal")]:
        try:
            noted.update(path.read_bytes().splitlines())
        except FileNotFoundError:
            continue
    return len(noted)


def _shards(out: Path) -> int:
    return len(list(out.glob("shard-*.safetensors")))


def _name(process: psutil.Process) -> str:
    try:
        line = " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return "gone"
    return "resource tracker" if "resource_tracker" in line else "worker"


@click.command(context_settings={"show_default": True})
@click.option("--kills", default=100)
@click.option("--seed", default=0)
def main(kills: int, seed: int) -> None:
    """Ends with a table of the kills by moment and process, if every store came out equal."""
    with tempfile.TemporaryDirectory() as folder:
        run = Kills(Path(folder), seed)
        run.kill(kills)
    for (phase, name), count in sorted(run.met.items()):
        click.echo(f"{phase:<12}{name:<18}{count:>5}")
    click.echo(f"{run.resumed} stores were resumed with a part of their samples")
    click.echo(f"{kills} kills: every resumed store equals the uninterrupted one byte by byte")


if __name__ == "__main__":
    main()
