"""With a disk budget, extraction takes turns with whoever removes shards."""

import dataclasses
import json
import threading
import time
from pathlib import Path

import pytest

import eagle3.extraction.extract
from eagle3.errors import InputError, StoreError
from eagle3.extraction import rounds
from eagle3.extraction.extract import extract
from eagle3.extraction.request import ExtractionRequest
from eagle3.progress import Progress
from eagle3.store.reader import StoreReader
from eagle3.store.room import bytes_of_shards, someone_waits
from eagle3.store.used import remove_shards
from tests.unit.extraction.requests import make_request
from tests.unit.fake_engine import FailingEngine, FakeEngine
from tests.unit.tiny_target import make_target

SHARD_BYTES = 8_000
BUDGET = 64_000


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExtractionRequest:
    monkeypatch.setattr(eagle3.extraction.extract, "Engine", FakeEngine)
    monkeypatch.setattr(rounds, "_SECONDS_BETWEEN_LOOKS", 0.01)
    lines = [json.dumps({"input_ids": [number] * 80}) for number in range(50)]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    return make_request(
        make_target(tmp_path / "target"),
        tmp_path / "data.jsonl",
        tmp_path / "out",
        max_tokens_per_step=100,
        shard_bytes=SHARD_BYTES,
        disk_budget=BUDGET,
        preflight=False,
    )


def test_the_disk_never_holds_more_than_its_budget(request_: ExtractionRequest) -> None:
    said: list[str] = []
    sizes: list[int] = []
    used: list[str] = []
    done = threading.Event()

    class Noting(Progress):
        def say(self, line: str) -> None:
            said.append(line)

    def use() -> None:
        while not done.wait(0.002):
            sizes.append(bytes_of_shards(request_.out))
            if someone_waits([request_.out]):
                store = StoreReader(request_.out)
                # The oldest alone: extraction goes on as soon as the next one fits.
                entries = [e for e in store.entries.values() if e.shard == store.shards[0]]
                remove_shards(request_.out, entries)
                used.extend(entry.id for entry in entries)

    user = threading.Thread(target=use)
    user.start()
    try:
        report = extract(request_, Noting())
    finally:
        done.set()
        user.join()
    assert BUDGET / 2 < max(sizes) <= BUDGET
    store = StoreReader(request_.out)
    assert store.is_complete
    assert store.used.keys() == set(used)
    assert report.samples == 50 - len(used)
    assert 10 < len(used) < 50
    assert not someone_waits([request_.out])
    assert any("of --disk-budget 64.0 kB are full: waiting for training" in line for line in said)
    assert f"out: samples used by training and removed: {len(used)}" in said
    # All of it is done.
    again = extract(request_, Noting())
    assert (again.tokens_per_s, again.samples) == (None, report.samples)


def test_without_a_budget_it_is_one_round(request_: ExtractionRequest) -> None:
    report = extract(dataclasses.replace(request_, disk_budget=None), Progress())
    assert report.samples == 50
    assert report.size > BUDGET


def test_an_error_in_a_round_leaves_no_sign(
    request_: ExtractionRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eagle3.extraction.extract, "Engine", FailingEngine)
    with pytest.raises(Exception, match="the target stopped answering"):
        extract(request_, Progress())
    assert not someone_waits([request_.out])
    assert StoreReader(request_.out).ids


def test_ctrl_c_ends_a_wait(request_: ExtractionRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        extract(request_, Progress())
    assert not someone_waits([request_.out])
    assert 0 < bytes_of_shards(request_.out) <= BUDGET


def test_a_budget_of_less_than_two_shards_is_refused(request_: ExtractionRequest) -> None:
    with pytest.raises(InputError, match=r"--disk-budget 9.0 kB is less than two shards of 8.0 kB"):
        extract(dataclasses.replace(request_, disk_budget=9_000), Progress())


def test_no_more_than_the_budget_must_be_free(
    request_: ExtractionRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eagle3.extraction.disk._bytes_free", lambda folder: BUDGET - 1)
    with pytest.raises(StoreError, match=r"64.0 kB are needed"):
        extract(request_, Progress())
