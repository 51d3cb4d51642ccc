"""A reader sees what is committed while the extraction still runs."""

from pathlib import Path

import pytest

from eagle3.errors import StoreError
from eagle3.store import grown
from eagle3.store.index import INDEX, IndexEntry, parse_entry
from eagle3.store.part import Part
from eagle3.store.reader import StoreReader
from eagle3.store.used import remove_shards
from eagle3.store.writer import StoreWriter
from tests.unit.store.stored import extract, make_manifest, make_samples, make_states

SAMPLES = make_samples(5)
MANIFEST = make_manifest(SAMPLES)


def test_a_shard_is_seen_when_it_is_committed_and_not_before(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, MANIFEST) as store:
        reader = StoreReader(tmp_path)
        for sample in SAMPLES:
            store.begin([sample])
            store.write(sample, make_states(sample))
            assert reader.refresh() == ()
            assert sample.id not in reader.ids
            assert not reader.is_complete
            store.commit()
            assert reader.refresh() == (sample.id,)
            assert reader.read(sample.id)[0] == sample
    assert reader.is_complete
    assert reader.ids == tuple(sample.id for sample in SAMPLES)


def test_new_samples_come_in_the_order_of_their_commits(tmp_path: Path) -> None:
    extract(tmp_path, MANIFEST, SAMPLES[:1])
    reader = StoreReader(tmp_path)
    extract(tmp_path, MANIFEST, SAMPLES[3:])
    extract(tmp_path, MANIFEST, SAMPLES[1:3])
    assert reader.refresh() == tuple(sample.id for sample in SAMPLES[3:] + SAMPLES[1:3])


def test_each_line_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of weeks has millions of lines, and new ones every second."""
    read: list[str] = []

    def note(line: bytes) -> IndexEntry:
        entry = parse_entry(line)
        read.append(entry.id)
        return entry

    monkeypatch.setattr(grown, "parse_entry", note)
    reader: StoreReader | None = None
    for number, sample in enumerate(SAMPLES):
        extract(Part(number % 2, 2).folder(tmp_path), MANIFEST, [sample])
        reader = reader or StoreReader(tmp_path)
        reader.refresh()
    assert reader is not None
    assert read == [sample.id for sample in SAMPLES]
    remove_shards(tmp_path, list(reader.entries.values())[:1])
    reader.refresh()
    assert read[len(SAMPLES) :] == [SAMPLES[0].id]
    assert reader.used.keys() == {SAMPLES[0].id}


def test_an_index_without_the_samples_of_a_shard_that_was_lost_is_seen(tmp_path: Path) -> None:
    for sample in SAMPLES[:3]:
        extract(tmp_path, MANIFEST, [sample])
    reader = StoreReader(tmp_path)
    (tmp_path / "shard-00001.safetensors").unlink()
    extract(tmp_path, MANIFEST, SAMPLES[3:])
    assert reader.refresh() == tuple(sample.id for sample in SAMPLES[3:])
    assert reader.entries == StoreReader(tmp_path).entries
    assert SAMPLES[1].id not in reader.entries


def test_an_index_that_was_cut_and_grew_is_read_anew(tmp_path: Path) -> None:
    for sample in SAMPLES[:3]:
        extract(tmp_path, MANIFEST, [sample])
    reader = StoreReader(tmp_path)
    lines = (tmp_path / INDEX).read_bytes().splitlines(keepends=True)
    (tmp_path / INDEX).write_bytes(lines[0] + lines[2].replace(b", ", b",  "))
    reader.refresh()
    assert reader.entries == StoreReader(tmp_path).entries
    assert SAMPLES[1].id not in reader.entries


def test_a_line_that_is_damaged_is_named_while_the_store_grows(tmp_path: Path) -> None:
    extract(tmp_path, MANIFEST, SAMPLES[:2])
    reader = StoreReader(tmp_path)
    with (tmp_path / INDEX).open("ab") as file:
        file.write(b"no line of an index\n")
    with pytest.raises(StoreError, match=r"index.jsonl:3 is damaged"):
        reader.refresh()


def test_parts_that_begin_later_are_seen(tmp_path: Path) -> None:
    extract(Part(0, 2).folder(tmp_path), MANIFEST, SAMPLES[:2])
    reader = StoreReader(tmp_path)
    extract(Part(1, 2).folder(tmp_path), MANIFEST, SAMPLES[2:])
    assert reader.refresh() == tuple(sample.id for sample in SAMPLES[2:])
    assert reader.read(SAMPLES[4].id)[0] == SAMPLES[4]
    assert reader.is_complete


def test_samples_that_are_set_aside_are_seen(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, MANIFEST) as store:
        reader = StoreReader(tmp_path)
        store.begin(SAMPLES)
        store.quarantine(SAMPLES[0], "all zero", "line 1")
        reader.refresh()
        assert set(reader.quarantined) == {SAMPLES[0].id}
        for sample in SAMPLES[1:]:
            store.write(sample, make_states(sample))
        store.commit()
    reader.refresh()
    assert reader.is_complete


def test_a_part_of_another_run_is_refused(tmp_path: Path) -> None:
    extract(Part(0, 2).folder(tmp_path), MANIFEST, SAMPLES[:2])
    reader = StoreReader(tmp_path)
    others = make_samples(6)
    extract(Part(1, 2).folder(tmp_path), make_manifest(others), others[4:])
    with pytest.raises(StoreError, match="does not belong with"):
        reader.refresh()
