"""Training beside extraction, with the real engine: the disk is bounded, and nothing is lost."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

from eagle3.draft.export import load_draft
from eagle3.store.reader import StoreReader
from eagle3.store.room import bytes_of_shards
from eagle3.training.commit_order import CommitOrder, Mark
from tests.integration.commands import start_command
from tests.integration.prompts import random_prompts
from tests.integration.tiny_models import VOCAB_SIZE, make_llama

SAMPLES = 60
BUDGET = 4 * 2**20
_CONFIG = """
data: {tokens_per_step: 512}
draft: {draft_vocab: 2048}
unroll: {unroll_steps: 2}
run: {checkpoint_every: 8, log_every: 4}
"""


def start(folder: Path, name: str) -> subprocess.Popen[str]:
    store = ("--out" if name == "extract" else "--store", str(folder / "store"))
    extract = ["--model", str(folder / "llama"), "--data", str(folder / "data.jsonl")]
    extract += ["--shard-size", "1MiB", "--disk-budget", "4MiB", "--max-tokens-per-step", "256"]
    train = ["--config", str(folder / "train.yaml"), "--out", str(folder / "out")]
    train += ["--follow", "--delete-after-use"]
    options = [*extract, "--no-preflight"] if name == "extract" else train
    with (folder / f"{name}.log").open("a") as log:
        return start_command(name, [*options, *store], stderr=log.fileno())


def test_training_learns_what_extraction_writes_while_it_writes(tmp_path: Path) -> None:
    chance = random.Random(0)
    make_llama(tmp_path / "llama")
    prompts = random_prompts([chance.randint(20, 200) for _ in range(SAMPLES)], VOCAB_SIZE)
    lines = [json.dumps({"input_ids": prompt}) for prompt in prompts]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    (tmp_path / "train.yaml").write_text(_CONFIG)
    store, order = tmp_path / "store", CommitOrder(tmp_path / "out")
    running = {name: start(tmp_path, name) for name in ("train", "extract")}
    # Each is killed once, when a part of the samples has come to training.
    to_kill = [(10, "extract"), (25, "train")]
    most = 0
    while running:
        time.sleep(0.01)
        most = max(most, bytes_of_shards(store))
        if to_kill and len(order.read()) >= to_kill[0][0]:
            _, name = to_kill.pop(0)
            os.kill(running[name].pid, signal.SIGKILL)
            running[name].wait()
            running[name] = start(tmp_path, name)
        for name, process in list(running.items()):
            if process.poll() is not None:
                said = (tmp_path / f"{name}.log").read_text()
                assert process.returncode == 0, said
                del running[name]
    assert not to_kill
    assert most <= BUDGET
    learnt = [event.id for event in order.read() if not isinstance(event, Mark)]
    assert len(learnt) == SAMPLES
    reader = StoreReader(store)
    assert reader.is_complete
    assert reader.used.keys() == set(learnt)
    assert not list(store.glob("shard-*"))
    assert load_draft(tmp_path / "out" / "draft").config.draft_vocab_size == VOCAB_SIZE
    assert "waiting for training to use shards" in (tmp_path / "extract.log").read_text()
    assert "waiting for extraction" in (tmp_path / "train.log").read_text()
