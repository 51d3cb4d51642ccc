"""Training on a store that still grows, and that is emptied behind it."""

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eagle3.errors import InputError, StoreError
from eagle3.progress import Progress
from eagle3.store.durable import PARTIAL
from eagle3.store.layout import journal_path
from eagle3.store.part import Part
from eagle3.store.reader import StoreReader
from eagle3.store.room import sign_of_waiting
from eagle3.store.sample import Sample
from eagle3.store.used import USED, read_used
from eagle3.store.writer import StoreWriter
from eagle3.training import following
from eagle3.training.checkpoint import newest_checkpoint, read_state
from eagle3.training.commit_order import CommitOrder, Mark
from eagle3.training.config import TrainConfig
from eagle3.training.following import StalledError
from eagle3.training.log import METRICS, read_records
from eagle3.training.packing import Packed
from eagle3.training.stop import StoppedError
from tests.unit.training.tiny_run import (
    VOCAB_SIZE,
    commit,
    into,
    make_manifest,
    make_samples,
    make_store,
    make_target,
    run_training,
    tiny_config,
)

SAMPLES = make_samples(64)
SHARDS = tuple(SAMPLES[place : place + 8] for place in range(0, 64, 8))


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_SECONDS_BETWEEN_LOOKS", 0.01)


def config(folder: Path, out: str = "out", **flags: Any) -> TrainConfig:
    following_flags = {
        "follow": True,
        # Shorter where a test waits for it.
        "follow_timeout": 200.0,
        "draft_vocab": VOCAB_SIZE,
        "checkpoint_every": 3,
        "log_every": 1,
        "max_steps": None,
    }
    return into(tiny_config(folder, **(following_flags | flags)), folder / out)


def extract(
    folder: Path,
    shards: Sequence[Sequence[Sample]] = SHARDS,
    between: Callable[[int], None] = lambda number: None,
) -> None:
    """Commits `shards` to the store in `folder`; calls `between` before each, and at the end."""
    with StoreWriter(folder / "store", make_manifest(folder / "target", SAMPLES)) as store:
        for number, samples in enumerate(shards):
            between(number)
            commit(store, samples)
    between(len(shards))


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def weights(out: Path) -> dict[str, bytes]:
    checkpoint = newest_checkpoint(out)
    assert checkpoint is not None
    return {path.name: path.read_bytes() for path in checkpoint.glob("*.safetensors")}


def learnt(out: Path) -> list[str]:
    """The ids in the order in which they came, of what is not held out."""
    events = CommitOrder(out).read()
    return [e.id for e in events if not isinstance(e, Mark) and not e.held_out]


class StoppedWaiting(Progress):
    """Sends SIGTERM when all of so many samples are taken, and more are waited for."""

    def __init__(self, samples: int) -> None:
        self._line = f"all {samples} of 64 samples are taken: waiting for extraction ..."

    def say(self, line: str) -> None:
        if line.startswith(self._line):
            signal.raise_signal(signal.SIGTERM)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    make_target(tmp_path / "target")
    return tmp_path


def test_a_growing_store_gives_the_bytes_of_a_finished_one(target: Path) -> None:
    extract(target)
    run_training(config(target, "finished"))
    (target / "store").rename(target / "before")

    steps = target / "out" / METRICS

    def wait_for_training(number: int) -> None:
        """Lets training come near the end of what is there before more is committed."""
        deadline = time.monotonic() + 100
        while number > 5 and not steps.exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    writer = in_thread(lambda: extract(target, between=wait_for_training))
    report = run_training(config(target))
    writer.join()
    assert report is not None
    assert learnt(target / "out") == [sample.id for sample in SAMPLES]
    assert weights(target / "out") == weights(target / "finished")
    # The last batches are not full.
    tokens = sum(len(sample.input_ids) for sample in SAMPLES)
    assert tokens / 64 <= report.steps <= tokens / 64 + 3


def test_every_row_is_learnt_once(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extract(target)
    rows: Counter[tuple[str, int]] = Counter()
    original = following.pack

    def noted(*arguments: Any) -> Iterator[Packed]:
        for batch in original(*arguments):
            for document in batch:
                for row in range(document.start, document.start + document.length):
                    rows[SAMPLES[document.sample].id, row] += 1
            yield batch

    monkeypatch.setattr(following, "pack", noted)
    run_training(config(target, tokens_per_step=32))
    assert rows == {(s.id, row): 1 for s in SAMPLES for row in range(len(s.input_ids))}


def test_a_run_that_is_caught_up_can_be_stopped_and_goes_on(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract(target)
    run_training(config(target, "whole"))
    (target / "store").rename(target / "before")
    extract(target, SHARDS[:5])

    with pytest.raises(StoppedError):
        run_training(config(target), progress=StoppedWaiting(40))
    assert newest_checkpoint(target / "out") is not None
    extract(target, SHARDS[5:])
    run_training(config(target))
    assert weights(target / "out") == weights(target / "whole")


def test_it_gives_up_when_nothing_comes_and_goes_on_later(target: Path) -> None:
    extract(target)
    run_training(config(target, "whole"))
    (target / "store").rename(target / "before")
    with pytest.raises(StalledError, match=r"no states came to .*store for 0 s; start extract"):
        run_training(config(target, follow_timeout=0.1))
    extract(target, SHARDS[:5])
    with pytest.raises(StalledError, match="for 0 s, and only 40 of 64 samples came: see whether"):
        run_training(config(target, follow_timeout=0.1))
    extract(target, SHARDS[5:])
    run_training(config(target, follow_timeout=0.1))
    assert weights(target / "out") == weights(target / "whole")


def test_shards_are_removed_when_a_checkpoint_has_them_and_not_before(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract(target)
    folder = target / "store"
    shards = StoreReader(folder).shards
    seen: list[tuple[int, int]] = []
    original = following.remove_shards

    def noted(*arguments: Any) -> None:
        checkpoint = newest_checkpoint(target / "out")
        original(*arguments)
        left = sum((folder / shard).exists() for shard in shards)
        seen.append((read_state(checkpoint).step if checkpoint else 0, left))

    monkeypatch.setattr(following, "remove_shards", noted)
    run_training(config(target, delete_after_use=True))
    steps, left = zip(*seen, strict=True)
    assert list(left) == sorted(left, reverse=True)
    assert left[0] > left[-1] == 0
    # 64 tokens a step: whatever is gone was learnt by then.
    for step, kept in zip(steps, left, strict=True):
        gone = sum(len(sample.input_ids) for part in SHARDS[: 8 - kept] for sample in part)
        assert gone <= 64 * step
    store = StoreReader(target / "store")
    assert store.is_complete
    assert (store.ids, set(store.used)) == ((), {sample.id for sample in SAMPLES})


def test_used_samples_are_not_extracted_again(target: Path) -> None:
    extract(target, SHARDS[:6])
    with pytest.raises(StalledError):
        run_training(config(target, delete_after_use=True, follow_timeout=0.1))
    used = set(read_used(target / "store"))
    assert used
    manifest = make_manifest(target / "target", SAMPLES)
    with StoreWriter(target / "store", manifest) as store:
        assert used <= store.committed.keys()
        first = commit_next(store)
    # No name comes again, though the files of all before may be gone.
    assert first == "shard-00006.safetensors"


def commit_next(store: StoreWriter) -> str:
    commit(store, SHARDS[6])
    return store.committed[SHARDS[6][0].id].shard


def test_while_extraction_waits_for_room_all_that_is_there_is_used(target: Path) -> None:
    store = target / "store"

    def wait_for_room(number: int) -> None:
        if number in (0, len(SHARDS)):
            return
        with sign_of_waiting(store):
            deadline = time.monotonic() + 300
            while list(store.glob("shard-*.safetensors")) and time.monotonic() < deadline:
                time.sleep(0.01)
        assert not list(store.glob("shard-*.safetensors"))

    writer = in_thread(lambda: extract(target, between=wait_for_room))
    run_training(config(target, delete_after_use=True, checkpoint_every=500, log_every=5))
    writer.join()
    order = CommitOrder(target / "out").read()
    assert [event for event in order if isinstance(event, Mark)] == [Mark.WAIT] * 7 + [Mark.END]
    assert learnt(target / "out") == [sample.id for sample in SAMPLES]
    records = [r for r in read_records(target / "out" / METRICS) if r["kind"] == "train"]
    # The learning rate goes by tokens: it falls all the way, and not below its end.
    rates = [record["learning_rate"] for record in records]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 0


def test_what_came_just_before_extraction_waits_is_taken_first(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract(target, SHARDS[:4])
    refresh = StoreReader.refresh

    with ExitStack() as signs:

        def refresh_a_moment_too_soon(store: StoreReader) -> tuple[str, ...]:
            new = refresh(store)
            if not new and len(learnt(target / "out")) == 32:
                monkeypatch.setattr(StoreReader, "refresh", refresh)
                extract(target, SHARDS[4:6])
                signs.enter_context(sign_of_waiting(target / "store"))
            return new

        monkeypatch.setattr(StoreReader, "refresh", refresh_a_moment_too_soon)
        with pytest.raises(StoppedError):
            run_training(
                config(target, delete_after_use=True, checkpoint_every=500),
                progress=StoppedWaiting(48),
            )
    order = CommitOrder(target / "out").read()
    assert [place for place, event in enumerate(order) if isinstance(event, Mark)] == [48]


def test_a_shard_whose_commit_has_not_ended_stays(target: Path) -> None:
    extract(target)
    last = target / "store" / "shard-00007.safetensors"
    journal_path(last).touch()
    run_training(config(target, delete_after_use=True))
    assert [path.name for path in (target / "store").glob("*.safetensors*")] == [last.name]
    journal_path(last).unlink()
    # The end of a run can be had again: what was left to remove is removed.
    run_training(config(target, delete_after_use=True))
    assert not list((target / "store").glob("*.safetensors*"))


def test_a_kill_between_note_and_removal_leaves_nothing_for_good(target: Path) -> None:
    extract(target)
    store = target / "store"
    copy = (store / "shard-00002.safetensors").read_bytes()
    run_training(config(target, delete_after_use=True))
    (store / "shard-00002.safetensors").write_bytes(copy)
    assert StoreReader(store).ids == ()
    run_training(config(target, delete_after_use=True))
    assert not list(store.glob("shard-*"))


def test_parts_are_followed_and_removed_alike(target: Path) -> None:
    manifest = make_manifest(target / "target", SAMPLES)
    for number in range(2):
        with StoreWriter(Part(number, 2).folder(target / "store"), manifest) as store:
            for shard in SHARDS[number::2]:
                commit(store, shard)
    run_training(config(target, delete_after_use=True))
    assert sorted(learnt(target / "out")) == sorted(sample.id for sample in SAMPLES)
    for number in range(2):
        part = Part(number, 2).folder(target / "store")
        assert len(read_used(part)) == 32
        assert not [path for path in part.glob("shard-*") if path.suffix != PARTIAL]
    assert not (target / "store" / USED).exists()


def test_what_is_validated_with_is_not_learnt(target: Path) -> None:
    extract(target)
    make_store(target / "held", target / "target", samples=8)
    held = set(StoreReader(target / "held").ids)
    assert held == {sample.id for sample in SAMPLES[:8]}
    report = run_training(
        config(target, validation_store=str(target / "held"), delete_after_use=True)
    )
    assert report is not None
    assert report.validated
    assert learnt(target / "out") == [sample.id for sample in SAMPLES[8:]]
    # The first shard has nothing else, and makes room like the others.
    assert not list((target / "store").glob("shard-*"))
    assert len(StoreReader(target / "store").used) == 64


def test_a_store_that_tells_late_what_is_held_out_ends_it(target: Path) -> None:
    """As where extract, which had a file before, goes on with the dataset of the same samples."""
    extract(target, SHARDS[:5])
    held_out = {sample.id for sample in SAMPLES[::8]}
    manifest = make_manifest(target / "target", SAMPLES, held_out=SAMPLES[::8])

    class MarkedWhileWaiting(Progress):
        def say(self, line: str) -> None:
            if line.endswith("waiting for extraction ..."):
                with StoreWriter(target / "store", manifest, held_out) as store:
                    commit(store, SHARDS[5])

    with pytest.raises(StoreError, match="says only now which samples are held out"):
        run_training(config(target), progress=MarkedWhileWaiting())
    assert len(learnt(target / "out")) == 40


def test_the_end_is_validated_also_where_a_wait_was_the_last_to_save(target: Path) -> None:
    *usable, unfit = SAMPLES
    make_store(target / "held", target / "target", samples=3, seed=5)
    manifest = make_manifest(target / "target", SAMPLES)
    with StoreWriter(target / "store", manifest) as store:
        commit(store, usable)
        recipe = config(
            target, validation_store=str(target / "held"), delete_after_use=True, follow_timeout=0.1
        )
        recipe = replace(recipe, run=replace(recipe.run, checkpoint_every=500))
        with sign_of_waiting(target / "store"), pytest.raises(StalledError):
            run_training(recipe)
        stalled = newest_checkpoint(target / "out")
        store.begin([unfit])
        store.quarantine(unfit, "nan", "its states are not finite")
        store.commit()
    assert stalled is not None
    assert read_state(stalled).acceptance is None
    report = run_training(recipe)
    assert newest_checkpoint(target / "out") == stalled
    assert report is not None
    assert report.step == report.steps
    assert report.after == read_state(stalled).acceptance


def test_what_cannot_work_is_refused(target: Path) -> None:
    extract(target)
    with pytest.raises(InputError, match="--follow cannot count which 16 tokens"):
        run_training(config(target, draft_vocab=16))
    with pytest.raises(InputError, match="--delete-after-use goes with --follow"):
        run_training(config(target, follow=False, delete_after_use=True))
    with pytest.raises(InputError, match="or give --long split"):
        run_training(config(target, tokens_per_step=16, long="refuse"))


def test_another_dataset_or_a_lost_order_is_refused(target: Path) -> None:
    extract(target)
    run_training(config(target))
    order = target / "out" / "order.jsonl"
    lines = order.read_bytes().splitlines(keepends=True)
    order.write_bytes(json.dumps({"id": 1}).encode() + b"\n")
    with pytest.raises(StoreError, match=r"order.jsonl is damaged"):
        run_training(config(target))
    order.write_bytes(b"".join(lines))
    (target / "store").rename(target / "before")
    make_store(target / "store", target / "target", samples=9)
    with pytest.raises(StoreError, match="its samples or its draft vocabulary are others"):
        run_training(config(target))
