"""Prints the memory of an extraction's processes over many tokens: flat, or growing?"""

import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click
import psutil

from eagle3.engine.architecture import read_architecture
from eagle3.store.reader import StoreReader
from tests.integration.commands import start_command
from tests.integration.tiny_models import make_llama

_SECONDS_BETWEEN_LOOKS = 0.5


@dataclass(frozen=True)
class Look:
    """Bytes that each process holds of its own, mapped files left out, at a moment."""

    tokens: int
    own: dict[str, int]


@click.command(context_settings={"show_default": True})
@click.option("--model", show_default="a tiny one", help="Folder of a checkpoint.")
@click.option("--tokens", default=1_000_000, help="Random tokens to extract.")
@click.option("--length", default=512, help="Mean tokens of a sample.")
@click.option("--rows", default=10, help="Lines of the table.")
def measure(model: str | None, tokens: int, length: int, rows: int) -> None:
    """Shards are mapped to check them, so pages of files are left out of what is counted."""
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder, "data.jsonl"), Path(folder, "out")
        model = model or str(make_llama(Path(folder, "llama")))
        _write_data(data, read_architecture(Path(model)).vocab_size, tokens, length)
        arguments = ["--model", model, "--data", str(data), "--out", str(out)]
        process = start_command("extract", [*arguments, "--shard-size", "64MiB"], stderr=None)
        looks = _watch(process, out)
        if process.returncode:
            sys.exit(process.returncode)
    click.echo(f"{'tokens':>12}{'command':>12}{'worker':>12}   own memory in MiB")
    for number in range(rows):
        # The most that was seen in each part of the run.
        part = looks[len(looks) * number // rows : len(looks) * (number + 1) // rows]
        most = [max(look.own.get(name, 0) for look in part) for name in ("command", "worker")]
        click.echo(f"{part[-1].tokens:>12,}" + "".join(f"{size / 2**20:>12,.0f}" for size in most))


def _write_data(path: Path, vocab_size: int, tokens: int, length: int) -> None:
    chance = random.Random(0)
    with path.open("w") as file:
        while tokens > 0:
            size = chance.randint(length // 2, length * 3 // 2)
            tokens -= size
            # Ordinary tokens: one for padding may be all zeros, which is told as a fault.
            line = {"input_ids": [chance.randrange(8, vocab_size) for _ in range(size)]}
            file.write(json.dumps(line) + "\n")


def _watch(process: subprocess.Popen[str], out: Path) -> list[Look]:
    """Looks from the first commit on: before it, the target is loading."""
    command = psutil.Process(process.pid)
    looks: list[Look] = []
    store = None
    while process.poll() is None:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
        if store is None and (out / "index.jsonl").exists():
            store = StoreReader(out)
        if store is None:
            continue
        store.refresh()
        try:
            own = {"command": _own(command)}
            own["worker"] = sum(_own(child) for child in command.children(recursive=True))
        except psutil.NoSuchProcess:
            continue
        if store.tokens:
            looks.append(Look(store.tokens, own))
    return looks


def _own(process: psutil.Process) -> int:
    memory = process.memory_info()
    return memory.rss - memory.shared


if __name__ == "__main__":
    measure()
