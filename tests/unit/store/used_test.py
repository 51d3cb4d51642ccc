"""Samples that were used and removed are done: not read, not made again, not lost in a merge."""

import tracemalloc
from pathlib import Path

import pytest

from eagle3.errors import StoreError
from eagle3.store.layout import next_shard_number
from eagle3.store.manifest import read_manifest
from eagle3.store.merge import merge_parts
from eagle3.store.part import Part
from eagle3.store.plan import plan_store
from eagle3.store.reader import StoreReader
from eagle3.store.room import bytes_of_shards, sign_of_waiting, someone_waits
from eagle3.store.used import USED, append_used, read_used, remove_shards
from eagle3.store.writer import StoreWriter
from tests.unit.store.stored import extract, make_manifest, make_samples

SAMPLES = make_samples(6)
MANIFEST = make_manifest(SAMPLES)


def use(folder: Path, *shards: str) -> None:
    entries = StoreReader(folder).entries.values()
    remove_shards(folder, [entry for entry in entries if entry.shard in shards])


def test_used_samples_are_done_and_not_there(tmp_path: Path) -> None:
    extract(tmp_path, MANIFEST, SAMPLES[:2])
    extract(tmp_path, MANIFEST, SAMPLES[2:4])
    use(tmp_path, "shard-00001.safetensors")
    store = StoreReader(tmp_path)
    assert store.ids == tuple(sample.id for sample in SAMPLES[:2])
    assert store.used.keys() == {sample.id for sample in SAMPLES[2:4]}
    with pytest.raises(StoreError, match="holds no sample"):
        store.read(SAMPLES[2].id)
    done = plan_store(tmp_path, MANIFEST)
    assert [sample.id in done for sample in SAMPLES] == [True] * 4 + [False] * 2
    assert not store.is_complete
    extract(tmp_path, MANIFEST, SAMPLES[4:])
    # The number of a shard that is gone does not come again.
    assert store.refresh() == tuple(sample.id for sample in SAMPLES[4:])
    assert store.shards == ("shard-00000.safetensors", "shard-00002.safetensors")
    assert store.is_complete
    counts = read_manifest(tmp_path).counts
    assert counts is not None
    assert (counts.samples, counts.shards) == (4, 2)
    assert counts.bytes == store.size == bytes_of_shards(tmp_path)


def test_a_shard_that_was_lost_is_no_used_one(tmp_path: Path) -> None:
    extract(tmp_path, MANIFEST, SAMPLES[:2])
    extract(tmp_path, MANIFEST, SAMPLES[2:])
    use(tmp_path, "shard-00000.safetensors")
    (tmp_path / "shard-00001.safetensors").unlink()
    done = plan_store(tmp_path, MANIFEST)
    assert [sample.id in done for sample in SAMPLES] == [True] * 2 + [False] * 4
    with StoreWriter(tmp_path, MANIFEST) as store:
        assert store.committed.keys() == {sample.id for sample in SAMPLES[:2]}


def test_what_is_used_can_be_had_again(tmp_path: Path) -> None:
    extract(tmp_path, MANIFEST, SAMPLES)
    use(tmp_path, "shard-00000.safetensors")
    (tmp_path / USED).unlink()
    assert SAMPLES[0].id not in plan_store(tmp_path, MANIFEST)
    extract(tmp_path, MANIFEST, SAMPLES)
    assert len(StoreReader(tmp_path).ids) == len(SAMPLES)


def test_a_second_removal_changes_nothing(tmp_path: Path) -> None:
    extract(tmp_path, MANIFEST, SAMPLES)
    entries = list(StoreReader(tmp_path).entries.values())
    remove_shards(tmp_path, entries)
    before = (tmp_path / USED).read_bytes()
    remove_shards(tmp_path, entries)
    assert (tmp_path / USED).read_bytes() == before


def test_a_removal_that_is_killed_goes_on(tmp_path: Path) -> None:
    extract(tmp_path, MANIFEST, SAMPLES)
    entries = list(StoreReader(tmp_path).entries.values())
    append_used(tmp_path, entries)
    remove_shards(tmp_path, entries)
    assert bytes_of_shards(tmp_path) == 0
    assert read_used(tmp_path).keys() == {sample.id for sample in SAMPLES}


def test_a_removal_does_not_read_what_was_noted_before(tmp_path: Path) -> None:
    """Millions of notes for each shard that goes would be read longer than the shard is used."""
    for sample in SAMPLES:
        extract(tmp_path, MANIFEST, [sample])
    entries = list(StoreReader(tmp_path).entries.values())
    remove_shards(tmp_path, entries[:3])
    line = (tmp_path / USED).read_bytes().splitlines(keepends=True)[0]
    (tmp_path / USED).write_bytes(line * 100_000)
    tracemalloc.start()
    remove_shards(tmp_path, entries[3:])
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 1_000_000
    assert read_used(tmp_path).keys() == {SAMPLES[0].id, *(entry.id for entry in entries[3:])}


def test_a_note_that_a_kill_cut_short_counts_for_nothing(tmp_path: Path) -> None:
    extract(tmp_path, MANIFEST, SAMPLES[:3])
    [*_, last] = StoreReader(tmp_path).entries.values()
    (tmp_path / USED).write_bytes(last.to_line()[:-9])
    assert len(StoreReader(tmp_path).ids) == 3
    remove_shards(tmp_path, StoreReader(tmp_path).entries.values())
    assert len(read_used(tmp_path)) == 3


def test_a_damaged_note_is_named(tmp_path: Path) -> None:
    extract(tmp_path, MANIFEST, SAMPLES)
    (tmp_path / USED).write_bytes(b"{}\n")
    with pytest.raises(StoreError, match=r"used.jsonl is damaged .*; remove it, and its samples"):
        StoreReader(tmp_path)


def test_a_merge_keeps_what_is_used(tmp_path: Path) -> None:
    for number in range(2):
        part = Part(number, 2).folder(tmp_path)
        extract(part, MANIFEST, SAMPLES[3 * number : 3 * number + 1])
        extract(part, MANIFEST, SAMPLES[3 * number + 1 : 3 * number + 3])
    use(tmp_path, "part-00001-of-00002/shard-00000.safetensors")
    assert StoreReader(tmp_path).is_complete
    merge_parts(tmp_path)
    store = StoreReader(tmp_path)
    assert not store.parts
    assert store.is_complete
    assert store.used.keys() == {SAMPLES[3].id}
    assert len(store.ids) == 5
    assert all(store.read(sample_id) for sample_id in store.ids)


def test_numbers_follow_the_highest_that_was() -> None:
    names = ["shard-00003.safetensors", "shard-00004.safetensors.partial", "index.jsonl"]
    assert next_shard_number(names) == 5
    assert next_shard_number([]) == 0


def test_the_sign_of_waiting_goes_with_the_wait(tmp_path: Path) -> None:
    extract(tmp_path, MANIFEST, SAMPLES[:1])
    with sign_of_waiting(tmp_path):
        assert someone_waits([tmp_path / "part", tmp_path])
        # It is no part of the store.
        assert plan_store(tmp_path, MANIFEST).committed
    assert not someone_waits([tmp_path])
