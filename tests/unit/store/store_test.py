"""What was committed is read back, by plain safetensors too, and a run goes on where it stopped."""

import json
import os
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from eagle3.errors import StoreError
from eagle3.store import plan, writer
from eagle3.store.plan import plan_store
from eagle3.store.reader import StoreReader
from eagle3.store.sample import Sample
from eagle3.store.shard import Shard
from eagle3.store.used import remove_shards
from eagle3.store.writer import StoreWriter
from tests.unit.store import stored
from tests.unit.store.stored import make_manifest, make_samples, make_states

SAMPLES = make_samples(3)
MANIFEST = make_manifest(SAMPLES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store in which the first two of three samples are committed."""
    folder = tmp_path / "new" / "store"
    extract(folder, SAMPLES[:2])
    return folder


def extract(folder: Path, samples: tuple[Sample, ...]) -> None:
    stored.extract(folder, MANIFEST, samples)


def test_what_was_committed_is_read_back(folder: Path) -> None:
    store = StoreReader(folder)
    assert store.ids == (SAMPLES[0].id, SAMPLES[1].id)
    assert store.manifest == MANIFEST
    assert not store.is_complete
    for expected in SAMPLES[:2]:
        sample, hidden_states_TLH = store.read(expected.id)
        assert sample == expected
        assert hidden_states_TLH.dtype == torch.bfloat16
        assert torch.equal(hidden_states_TLH, make_states(expected))


def test_a_shard_is_a_plain_safetensors_file(folder: Path) -> None:
    tensors = load_file(folder / "shard-00000.safetensors")
    assert {name: (tensor.dtype, list(tensor.shape)) for name, tensor in tensors.items()} == {
        "hidden_states": (torch.bfloat16, [3, 2, 4]),
        "input_ids": (torch.int64, [3]),
        "loss_mask": (torch.uint8, [3]),
        "sample_offsets": (torch.int64, [3]),
    }
    assert tensors["sample_offsets"].tolist() == [0, 1, 3]
    assert tensors["input_ids"].tolist() == [1, 2, 3]
    assert tensors["loss_mask"].tolist() == [1, 1, 1]
    assert torch.equal(tensors["hidden_states"][1:3], make_states(SAMPLES[1]))


def test_one_sample_can_be_read_with_its_line_of_the_index_alone(folder: Path) -> None:
    line = json.loads((folder / "index.jsonl").read_text().splitlines()[1])
    rows = slice(line["offset"], line["offset"] + line["length"])
    with safe_open(folder / line["shard"], "pt") as shard:
        assert shard.metadata() == {"format": "pt", "capture_points": "3,1"}
        assert torch.equal(shard.get_slice("hidden_states")[rows], make_states(SAMPLES[1]))
        assert tuple(shard.get_slice("input_ids")[rows].tolist()) == SAMPLES[1].input_ids


def test_rows_begin_on_a_page_and_tables_are_little(folder: Path) -> None:
    content = (folder / "shard-00000.safetensors").read_bytes()
    rows = make_states(SAMPLES[0]).view(torch.uint8).numpy().tobytes()
    assert content.index(rows) == 4096
    assert len(content) == 4096 + 3 * 2 * 4 * 2 + 3 * 8 + 3 * 8 + 3


def test_states_can_be_changed_in_memory_without_changing_the_disk(folder: Path) -> None:
    _, hidden_states_TLH = StoreReader(folder).read(SAMPLES[1].id)
    hidden_states_TLH.zero_()
    assert torch.equal(StoreReader(folder).read(SAMPLES[1].id)[1], make_states(SAMPLES[1]))


def test_the_size_is_that_of_the_shards(folder: Path) -> None:
    extract(folder, SAMPLES[2:])
    shards = [folder / "shard-00000.safetensors", folder / "shard-00001.safetensors"]
    assert StoreReader(folder).size == sum(path.stat().st_size for path in shards)


def test_a_run_goes_on_where_it_stopped(folder: Path) -> None:
    done = plan_store(folder, MANIFEST)
    assert [sample.id in done for sample in SAMPLES] == [True, True, False]
    extract(folder, SAMPLES[2:])
    store = StoreReader(folder)
    assert store.is_complete
    assert torch.equal(store.read(SAMPLES[0].id)[1], make_states(SAMPLES[0]))


def test_an_empty_or_missing_folder_holds_nothing(tmp_path: Path) -> None:
    assert not plan_store(tmp_path, MANIFEST).committed
    assert not plan_store(tmp_path / "a" / "b", MANIFEST).committed
    assert not (tmp_path / "a").exists()


def test_what_is_written_counts_when_its_shard_is_committed(folder: Path) -> None:
    with StoreWriter(folder, MANIFEST) as store:
        store.begin(SAMPLES[2:])
        store.write(SAMPLES[2], make_states(SAMPLES[2]))
        assert SAMPLES[2].id not in StoreReader(folder).ids
        store.commit()
        assert SAMPLES[2].id in StoreReader(folder).ids


def test_a_shard_is_begun_without_a_look_at_all_that_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store of 300 TB has 300,000 shards, and begins with one after the other."""
    with StoreWriter(tmp_path, MANIFEST) as store, monkeypatch.context() as patched:
        patched.setattr(writer, "next_shard_number", None)
        for sample in SAMPLES:
            shard = store.begin([sample])
            store.write(sample, make_states(sample))
            store.commit()
    assert shard.final.name == f"shard-{len(SAMPLES) - 1:05d}.safetensors"


def test_many_shards_are_looked_at_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, those of a large store on a network took many minutes."""
    for sample in SAMPLES:
        extract(tmp_path, (sample,))
    together = Barrier(len(SAMPLES), timeout=200)

    def look(path: Path) -> Shard:
        together.wait()
        return Shard(path)

    monkeypatch.setattr(plan, "Shard", look)
    assert len(plan_store(tmp_path, MANIFEST).committed) == len(SAMPLES)


def test_many_shards_are_measured_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for sample in SAMPLES:
        extract(tmp_path, (sample,))
    reader, sizes = StoreReader(tmp_path), [path.stat().st_size for path in tmp_path.glob("*.s*s")]
    together = Barrier(len(SAMPLES), timeout=200)
    stat = Path.stat

    def look(path: Path, **options: Any) -> os.stat_result:
        together.wait()
        return stat(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", look)
        assert reader.size == sum(sizes)


def test_a_shard_with_a_sample_unwritten_is_not_committed(folder: Path) -> None:
    extra = Sample((7,), (1,))
    with StoreWriter(folder, MANIFEST) as store:
        store.begin((SAMPLES[2], extra))
        store.write(SAMPLES[2], make_states(SAMPLES[2]))
        with pytest.raises(StoreError, match=f"sample {extra.id} was not written"):
            store.commit()
    # What was whole is not lost, and the shard holds nothing else.
    assert set(StoreReader(folder).ids) == {sample.id for sample in SAMPLES}
    tensors = load_file(folder / "shard-00001.safetensors")
    assert torch.equal(tensors["hidden_states"], make_states(SAMPLES[2]))
    assert tensors["sample_offsets"].tolist() == [0, 3]


def test_a_row_is_written_only_once_and_only_where_it_is_planned(folder: Path) -> None:
    with StoreWriter(folder, MANIFEST) as store:
        store.begin(SAMPLES[2:])
        store.write(SAMPLES[2], make_states(SAMPLES[2]))
        for sample in (SAMPLES[2], SAMPLES[0]):
            with pytest.raises(StoreError, match=f"sample {sample.id} is not awaited"):
                store.write(sample, make_states(sample))
        store.commit()


def test_a_run_that_goes_on_reads_each_file_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have millions of lines where the store is large."""
    remove_shards(folder, StoreReader(folder).entries.values())
    names: list[str] = []
    read_bytes = Path.read_bytes

    def read(path: Path) -> bytes:
        names.append(path.name)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", read)
    with StoreWriter(folder, MANIFEST) as store:
        assert len(store.committed) == 2
        assert sorted(names) == ["index.jsonl", "used.jsonl"]
        assert store.begin(SAMPLES[2:]).final.name == "shard-00001.safetensors"


def test_half_a_line_in_the_index_does_not_count(folder: Path) -> None:
    index = folder / "index.jsonl"
    index.write_bytes(index.read_bytes()[:-5])
    assert StoreReader(folder).ids == (SAMPLES[0].id,)
    extract(folder, SAMPLES[1:])
    assert set(StoreReader(folder).ids) == {sample.id for sample in SAMPLES}
    assert all(json.loads(line) for line in index.read_text().splitlines())


def test_leftovers_without_a_journal_are_removed(folder: Path) -> None:
    leftover = folder / "shard-00007.safetensors.partial"
    leftover.write_bytes(b"half")
    extract(folder, SAMPLES[2:])
    assert not leftover.exists()


def test_a_folder_in_which_a_run_was_killed_at_its_first_file_is_empty(tmp_path: Path) -> None:
    (tmp_path / "manifest.json.partial").write_bytes(b"{")
    assert not plan_store(tmp_path, MANIFEST).committed


def test_a_commit_survives_a_power_cut(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is on disk for sure before its fsync, so the order of the calls is the promise."""
    calls: list[str] = []

    def record(name: str) -> None:
        real = getattr(os, name)

        def recorded(*args: Any, **extra: Any) -> Any:
            on_path = isinstance(args[0], str | Path)
            of = args[0] if on_path else os.readlink(f"/proc/self/fd/{args[0]}")
            calls.append(f"{name} {Path(of).name}")
            return real(*args, **extra)

        monkeypatch.setattr(os, name, recorded)

    with StoreWriter(folder, MANIFEST) as store:
        store.begin(SAMPLES[2:])
        store.write(SAMPLES[2], make_states(SAMPLES[2]))
        for name in ("fsync", "rename", "write", "unlink"):
            record(name)
        store.commit()
        assert calls == [
            "fsync shard-00001.safetensors.partial",
            "rename shard-00001.safetensors.partial",
            "fsync store",
            "write index.jsonl",
            "fsync index.jsonl",
            "unlink shard-00001.journal",
        ]
        calls.clear()
    assert calls == ["fsync manifest.json.partial", "rename manifest.json.partial", "fsync store"]


def test_the_manifest_says_what_the_states_are_and_counts_them(folder: Path) -> None:
    fields = json.loads((folder / "manifest.json").read_text())
    assert fields["schema_version"] == 2
    assert fields["dtype"] == "bfloat16"
    assert fields["norm_applied"] is False
    assert fields["capture_points"] == [3, 1]
    assert fields["command"] == "extract --out store"
    assert fields["counts"] == {
        "samples": 2,
        "tokens": 3,
        "shards": 1,
        "bytes": (folder / "shard-00000.safetensors").stat().st_size,
        "quarantined": {},
    }


def test_a_sample_set_aside_is_done_and_counted_and_not_in_the_store(folder: Path) -> None:
    extra = Sample((7, 8), (1, 1))
    with StoreWriter(folder, MANIFEST) as store:
        store.begin((extra, SAMPLES[2]))
        store.quarantine(extra, "all zero", "data:7: all zero at token 0")
        store.write(SAMPLES[2], make_states(SAMPLES[2]))
        store.commit()
    reader = StoreReader(folder)
    assert extra.id not in reader.ids
    assert extra.id in plan_store(folder, MANIFEST)
    assert reader.quarantined[extra.id].detail == "data:7: all zero at token 0"
    counts = json.loads((folder / "manifest.json").read_text())["counts"]
    assert counts["samples"] == 3
    assert counts["quarantined"] == {"all zero": 1}
    # Whoever reads the shard without the index finds nothing to train on in those rows.
    assert load_file(folder / "shard-00001.safetensors")["loss_mask"].tolist() == [0, 0, 1, 1, 1]
    assert torch.equal(reader.read(SAMPLES[2].id)[1], make_states(SAMPLES[2]))


def test_a_shard_of_nothing_but_unfit_samples_is_none(folder: Path) -> None:
    with StoreWriter(folder, MANIFEST) as store:
        store.begin(SAMPLES[2:])
        store.quarantine(SAMPLES[2], "constant", "data:1")
        store.commit()
    assert not list(folder.glob("shard-00001*"))
    assert StoreReader(folder).is_complete


@pytest.mark.parametrize(
    "states",
    [
        make_states(SAMPLES[1]),
        make_states(SAMPLES[2])[:, :1],
        make_states(SAMPLES[2])[:, :, :2],
        make_states(SAMPLES[2]).float(),
    ],
    ids=["length", "points", "hidden", "dtype"],
)
def test_states_of_another_shape_are_refused(folder: Path, states: torch.Tensor) -> None:
    with StoreWriter(folder, MANIFEST) as store:
        store.begin(SAMPLES[2:])
        with pytest.raises(StoreError, match=f"sample {SAMPLES[2].id}: the states are"):
            store.write(SAMPLES[2], states)


def test_rows_that_plain_safetensors_could_not_read_are_refused(tmp_path: Path) -> None:
    odd = Path(tmp_path / "odd")
    manifest = make_manifest(SAMPLES, hidden_size=3)
    with (
        StoreWriter(odd, manifest) as store,
        pytest.raises(StoreError, match=r"rows of 2 x 3 values are no multiple of 8 bytes"),
    ):
        store.begin(SAMPLES)
