"""kill -9 at random moments of extractions: the resumed store equals an uninterrupted one."""

import json
import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import eagle3.extraction.extract
from eagle3.extraction.extract import extract
from eagle3.extraction.request import ExtractionRequest
from eagle3.progress import Progress
from eagle3.store.reader import StoreReader
from tests.unit.extraction.requests import make_request
from tests.unit.fake_engine import FakeEngine
from tests.unit.store.stored import contents
from tests.unit.tiny_target import make_target

KILLS = 100
SAMPLES = 40
SECONDS_PER_BATCH = 0.004


class TimedEngine(FakeEngine):
    """Takes its time, so that kills meet the target at work as well as the store."""

    def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        time.sleep(SECONDS_PER_BATCH)
        return super().extract(token_ids)


def request_for(folder: Path, out: str) -> ExtractionRequest:
    return make_request(
        folder / "target",
        folder / "data.jsonl",
        folder / out,
        layers=(5, 0),
        max_tokens_per_step=32,
        shard_bytes=4000,
    )


def start(request: ExtractionRequest) -> int:
    """Runs the extraction in a process of its own, and returns its number."""
    child = os.fork()
    if child == 0:
        exit_code = 1
        try:
            extract(request, Progress())
            exit_code = 0
        finally:
            # Never back into pytest, whatever was raised.
            os._exit(exit_code)
    return child


def test_a_hundred_kills_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A fork takes along the locks of torch's threads but not the threads: the child would wait.
    torch.set_num_threads(1)
    monkeypatch.setattr(eagle3.extraction.extract, "Engine", TimedEngine)
    make_target(tmp_path / "target")
    chance = random.Random(0)
    lines = [
        json.dumps({"input_ids": [chance.randrange(200) for _ in range(chance.randint(1, 40))]})
        for _ in range(SAMPLES)
    ]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    began = time.monotonic()
    extract(request_for(tmp_path, "whole"), Progress())
    seconds = time.monotonic() - began
    whole = contents(tmp_path / "whole")
    assert len(whole) == SAMPLES

    kills = resumed = 0
    number = 0
    while kills < KILLS:
        number += 1
        request = request_for(tmp_path, str(number))
        committed: set[str] = set()
        for _ in range(chance.randint(1, 3)):
            child = start(request)
            time.sleep(chance.uniform(0, seconds))
            os.kill(child, signal.SIGKILL)
            # The machine may be more busy than when a run was timed, or less.
            if os.WIFSIGNALED(os.waitpid(child, 0)[1]):
                kills += 1
            else:
                seconds *= 0.9
            if not (request.out / "manifest.json").exists():
                seconds *= 1.1
            else:
                found = contents(request.out)
                assert committed <= found.keys()
                assert found.items() <= whole.items()
                committed = set(found)
        resumed += 0 < len(committed) < SAMPLES
        # The order of the data is another one, too.
        (tmp_path / "data.jsonl").write_text("\n".join(chance.sample(lines, SAMPLES)))
        extract(request, Progress())
        assert contents(request.out) == whole
        shards = {path.name for path in request.out.iterdir() if path.name.startswith("shard-")}
        assert shards == set(StoreReader(request.out).shards)
    # The moments were well spread: many a run had a part of its work behind it.
    assert resumed > number / 4
