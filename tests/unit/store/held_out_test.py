"""Samples that must not be trained on are marked, whatever happens to their store."""

import dataclasses
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from eagle3.errors import StoreError
from eagle3.store.index import INDEX, read_index
from eagle3.store.layout import journal_path
from eagle3.store.manifest import MANIFEST as MANIFEST_FILE
from eagle3.store.manifest import Manifest, SamplesIdentity, read_manifest
from eagle3.store.merge import merge_parts
from eagle3.store.pack import pack_store, unpack_store
from eagle3.store.part import Part
from eagle3.store.plan import can_mark, plan_store
from eagle3.store.reader import StoreReader
from eagle3.store.sample import Sample, dataset_digest
from eagle3.store.used import read_used, remove_shards
from eagle3.store.writer import StoreWriter
from tests.unit.store.stored import contents, make_manifest, make_samples, make_states

SAMPLES = make_samples(8)
HELD_OUT = frozenset(sample.id for sample in SAMPLES[2::3])
PLAIN = make_manifest(SAMPLES)
MARKED = PLAIN.with_held_out(
    SamplesIdentity(2, 3 + 6, dataset_digest([s for s in SAMPLES if s.id in HELD_OUT]))
)


def extract(
    folder: Path,
    samples: Sequence[Sample] = SAMPLES,
    manifest: Manifest = MARKED,
    held_out: frozenset[str] = HELD_OUT,
) -> None:
    """Commits those of `samples` that are missing, as one shard."""
    with StoreWriter(folder, manifest, held_out) as store:
        missing = [sample for sample in samples if sample.id not in store.committed]
        if missing:
            store.begin(missing)
            for sample in missing:
                store.write(sample, make_states(sample))
            store.commit()


def extract_without_marks(folder: Path, samples: Sequence[Sample] = SAMPLES) -> None:
    """As a program does that knows nothing of them, or for data that holds out nothing."""
    extract(folder, samples, PLAIN, frozenset())


def test_the_index_marks_what_is_held_out_and_nothing_else(tmp_path: Path) -> None:
    extract(tmp_path)
    store = StoreReader(tmp_path)
    assert len(store.ids) == 8
    assert set(store.held_out) == HELD_OUT
    assert store.manifest.dataset.held_out == MARKED.dataset.held_out
    # The states and the ids are those of a store without marks.
    extract_without_marks(tmp_path / "plain")
    assert contents(tmp_path) == contents(tmp_path / "plain")


def test_a_store_without_marks_is_written_as_ever(tmp_path: Path) -> None:
    extract_without_marks(tmp_path)
    assert StoreReader(tmp_path).held_out == ()
    for name in (INDEX, MANIFEST_FILE):
        assert "held_out" not in (tmp_path / name).read_text()


def test_a_killed_run_leaves_the_marks(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        store = StoreWriter(tmp_path, MARKED, HELD_OUT).__enter__()
        store.begin(SAMPLES)
        for sample in SAMPLES[:6]:
            store.write(sample, make_states(sample))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert StoreReader(tmp_path).ids == ()
    assert list(tmp_path.glob("*.journal"))
    # The next to open it may be a merge, which does not know what is held out.
    with StoreWriter(tmp_path, MARKED):
        pass
    assert len(StoreReader(tmp_path).ids) == 6
    assert set(StoreReader(tmp_path).held_out) == HELD_OUT
    extract(tmp_path)
    assert StoreReader(tmp_path).is_complete
    assert set(StoreReader(tmp_path).held_out) == HELD_OUT


def test_resuming_marks_what_was_written_without(tmp_path: Path) -> None:
    extract_without_marks(tmp_path, SAMPLES[:4])
    shard = (tmp_path / "shard-00000.safetensors").read_bytes()
    reader = StoreReader(tmp_path)
    assert reader.held_out == ()
    assert SAMPLES[2].id in plan_store(tmp_path, MARKED)
    extract(tmp_path)
    assert set(StoreReader(tmp_path).held_out) == HELD_OUT
    assert read_manifest(tmp_path).dataset.held_out == MARKED.dataset.held_out
    assert (tmp_path / "shard-00000.safetensors").read_bytes() == shard
    # One who reads it meanwhile sees it, too.
    reader.refresh()
    assert set(reader.held_out) == HELD_OUT
    assert len(reader.ids) == 8


def test_the_rest_of_a_killed_run_without_marks_is_marked(tmp_path: Path) -> None:
    extract_without_marks(tmp_path, SAMPLES[:3])
    # As if the kill came before the index knew of them.
    entries = read_index(tmp_path).values()
    journal_path(tmp_path / "shard-00000.safetensors").write_bytes(
        b"".join(entry.to_line() for entry in entries)
    )
    (tmp_path / INDEX).write_bytes(b"")
    with StoreWriter(tmp_path, MARKED, HELD_OUT) as store:
        assert len(store.committed) == 3
    assert StoreReader(tmp_path).held_out == (SAMPLES[2].id,)


def test_marks_are_not_lost_to_data_that_holds_out_nothing_or_others(tmp_path: Path) -> None:
    extract(tmp_path, SAMPLES[:4])
    before = (tmp_path / INDEX).read_bytes()
    with pytest.raises(StoreError, match=r"dataset\.held_out is samples 2 .* there and None here"):
        plan_store(tmp_path, PLAIN)
    others = PLAIN.with_held_out(SamplesIdentity(2, 9, "0" * 64))
    with pytest.raises(StoreError, match=r"dataset\.held_out\.sha256 is"):
        plan_store(tmp_path, others)
    with pytest.raises(StoreError, match="holds another run"):
        extract_without_marks(tmp_path)
    assert (tmp_path / INDEX).read_bytes() == before


def test_parts_keep_their_marks_and_a_merge_does(tmp_path: Path) -> None:
    for number in range(2):
        part = Part(number, 2)
        assert can_mark(tmp_path, part)
        extract(part.folder(tmp_path), SAMPLES[number::2])
    assert set(StoreReader(tmp_path).held_out) == HELD_OUT
    assert merge_parts(tmp_path) == 2
    store = StoreReader(tmp_path)
    assert (store.parts, set(store.held_out)) == ((), HELD_OUT)
    assert store.manifest.dataset == MARKED.dataset


def test_what_other_parts_were_begun_without_cannot_be_marked(tmp_path: Path) -> None:
    """So long as not all say what is held out, none may seem to."""
    first, second = Part(0, 2), Part(1, 2)
    extract_without_marks(first.folder(tmp_path), SAMPLES[::2])
    assert can_mark(tmp_path, first)
    assert not can_mark(tmp_path, second)
    assert not can_mark(tmp_path, Part())
    extract_without_marks(second.folder(tmp_path), SAMPLES[1::2])
    assert not can_mark(tmp_path, first)
    merge_parts(tmp_path)
    assert can_mark(tmp_path, Part())
    extract(tmp_path)
    assert set(StoreReader(tmp_path).held_out) == HELD_OUT


def test_parts_that_disagree_are_no_store(tmp_path: Path) -> None:
    extract(Part(0, 2).folder(tmp_path), SAMPLES[::2])
    extract_without_marks(Part(1, 2).folder(tmp_path), SAMPLES[1::2])
    with pytest.raises(StoreError, match=r"does not belong with .*dataset\.held_out"):
        StoreReader(tmp_path)


def test_a_journey_keeps_the_marks(tmp_path: Path) -> None:
    extract(tmp_path / "store")
    pack_store(tmp_path / "store", tmp_path / "packed", lambda done, total: None)
    unpack_store(tmp_path / "packed", tmp_path / "again", lambda done, total: None)
    assert set(StoreReader(tmp_path / "again").held_out) == HELD_OUT


def test_what_was_used_and_removed_keeps_the_marks(tmp_path: Path) -> None:
    extract(tmp_path)
    remove_shards(tmp_path, StoreReader(tmp_path).entries.values())
    marked = {entry.id for entry in read_used(tmp_path).values() if entry.held_out}
    assert marked == HELD_OUT
    assert StoreReader(tmp_path).held_out == ()


def test_another_target_is_refused_as_ever(tmp_path: Path) -> None:
    extract_without_marks(tmp_path)
    other = dataclasses.replace(MARKED, hidden_size=8)
    with pytest.raises(StoreError, match="hidden_size is 4 there and 8 here"):
        plan_store(tmp_path, other)
