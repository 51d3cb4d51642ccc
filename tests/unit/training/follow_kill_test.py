"""kill -9 of extraction and of the training that follows it and empties its store, at random."""

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

import eagle3.extraction.extract
from eagle3.extraction import rounds
from eagle3.extraction.extract import extract
from eagle3.preparation.prepare import prepare
from eagle3.preparation.request import PreparationRequest
from eagle3.progress import Progress
from eagle3.store.reader import StoreReader
from eagle3.store.room import bytes_of_shards
from eagle3.training import following
from eagle3.training.checkpoint import newest_checkpoint
from eagle3.training.commit_order import ORDER, CommitOrder, Mark
from eagle3.training.config import TrainConfig
from eagle3.training.log import METRICS, read_records
from tests.unit import tiny_target
from tests.unit.extraction.requests import make_request
from tests.unit.fake_engine import FakeEngine
from tests.unit.training.tiny_run import (
    VOCAB_SIZE,
    into,
    make_samples,
    make_target,
    run_training,
    tiny_config,
)

KILLS = 30
SHARD_BYTES = 16_000
BUDGET = 5 * SHARD_BYTES
SAMPLES = make_samples(96)


class TimedEngine(FakeEngine):
    """Takes its time, so that both processes are met at work and at waiting."""

    def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        time.sleep(0.01)
        return super().extract(token_ids)


def make_world(folder: Path) -> None:
    """`target`, with a tokenizer for extraction and weights for training, and a `dataset`."""
    make_target(folder / "target")
    tiny_target.make_target(folder / "tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(folder / "tokenizer" / name, folder / "target" / name)
    lines = [
        json.dumps({"input_ids": sample.input_ids, "loss_mask": sample.loss_mask})
        for sample in SAMPLES
    ]
    (folder / "data.jsonl").write_text("\n".join(lines))
    # What is held out comes last, and fills more than a shard.
    request = PreparationRequest(
        folder / "data.jsonl", folder / "target", folder / "dataset", validation_share=0.2
    )
    prepare(request, Progress())


def run_extraction(folder: Path, **changes: int | None) -> None:
    options = {"shard_bytes": SHARD_BYTES, "disk_budget": BUDGET, "max_tokens_per_step": 64}
    request = make_request(
        folder / "target",
        folder / "dataset",
        folder / "store",
        preflight=False,
        **(options | changes),
    )
    extract(request, Progress())


def training_config(folder: Path) -> TrainConfig:
    return tiny_config(
        folder,
        follow=True,
        follow_timeout=600.0,
        delete_after_use=True,
        draft_vocab=VOCAB_SIZE,
        checkpoint_every=5,
        max_steps=None,
    )


def start(work: Callable[[], object]) -> int:
    """Runs `work` in a process of its own, and returns its number."""
    child = os.fork()
    if child == 0:
        exit_code = 1
        try:
            work()
            exit_code = 0
        finally:
            # Never back into pytest, whatever was raised.
            os._exit(exit_code)
    return child


def test_nothing_is_lost_and_nothing_is_learnt_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(eagle3.extraction.extract, "Engine", TimedEngine)
    monkeypatch.setattr(rounds, "_SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(following, "_SECONDS_BETWEEN_LOOKS", 0.01)
    chance = random.Random(0)
    kills = met_waiting = number = 0
    most = 0
    while kills < KILLS:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        make_world(folder)
        config = training_config(folder)
        works: dict[str, Callable[[], object]] = {
            "extract": lambda folder=folder: run_extraction(folder),
            "train": lambda config=config: run_training(config),
        }
        running = {name: start(work) for name, work in works.items()}
        # Kills are spread over a run of some seconds; every third comes when extraction waits.
        moments = sorted(time.monotonic() + chance.uniform(0.05, 4) for _ in range(6))
        sign = folder / "store" / "waiting-for-room"
        while running:
            time.sleep(0.002)
            most = max(most, bytes_of_shards(folder / "store"))
            for name, process in list(running.items()):
                ended, status = os.waitpid(process, os.WNOHANG)
                if ended:
                    assert status == 0, f"{name} failed in run {number}"
                    del running[name]
            due = moments and time.monotonic() > moments[0] and running
            if due and (len(moments) % 3 or sign.exists()):
                moments.pop(0)
                name = chance.choice(list(running))
                met_waiting += sign.exists()
                os.kill(running[name], signal.SIGKILL)
                os.waitpid(running[name], 0)
                kills += 1
                running[name] = start(works[name])
        check(folder, config)
    # Kills met extraction at waiting, too; and the disk never held more than it should.
    assert met_waiting > 2
    assert BUDGET / 2 < most <= BUDGET


def check(folder: Path, config: TrainConfig) -> None:
    ids = {sample.id for sample in SAMPLES}
    order = CommitOrder(folder / "out").read()
    came = [event.id for event in order if not isinstance(event, Mark)]
    assert len(came) == len(ids)
    assert set(came) == ids
    held_out = pq.read_table(folder / "dataset" / "validation-00000.parquet")["id"].to_pylist()
    assert len(held_out) > 10
    left_out = {event.id for event in order if not isinstance(event, Mark) and event.held_out}
    assert left_out == set(held_out)
    learnt = sum(len(sample.input_ids) for sample in SAMPLES if sample.id not in left_out)
    assert read_records(folder / "out" / METRICS)[-1]["tokens"] == learnt
    store = StoreReader(folder / "store")
    assert store.is_complete
    assert store.used.keys() == ids
    assert not list((folder / "store").glob("shard-*"))
    # The same order over a store of everything, in one go: the same draft, byte for byte.
    (folder / "store").rename(folder / "emptied")
    run_extraction(folder, disk_budget=None)
    whole = into(config, folder / "whole")
    (folder / "whole").mkdir()
    shutil.copy(folder / "out" / "config.yaml", folder / "whole")
    shards = StoreReader(folder / "store").entries
    places = CommitOrder(folder / "whole")
    places.append([e if isinstance(e, Mark) else shards[e.id] for e in order])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CommitOrder, "begin", lambda self: None)
        run_training(whole)
    assert (folder / "whole" / ORDER).exists()
    assert weights(folder / "out") == weights(folder / "whole")


def weights(out: Path) -> dict[str, bytes]:
    checkpoint = newest_checkpoint(out)
    assert checkpoint is not None
    return {path.name: path.read_bytes() for path in checkpoint.glob("*.safetensors")}
