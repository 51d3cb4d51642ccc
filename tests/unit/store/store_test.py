"""What was committed is read back; what is damaged, foreign or half-written is named."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from eagle3.errors import StoreError
from eagle3.store.manifest import StackIdentity
from eagle3.store.plan import plan_store
from eagle3.store.reader import StoreReader
from eagle3.store.sample import Sample
from eagle3.store.writer import StoreWriter
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
    with StoreWriter(folder, MANIFEST) as store:
        for sample in samples:
            store.write(sample, make_states(sample))
        store.commit()


def sample_file(folder: Path, sample: Sample) -> Path:
    return folder / "samples" / f"{sample.id}.safetensors"


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


def test_a_sample_is_a_plain_safetensors_file(folder: Path) -> None:
    tensors = load_file(sample_file(folder, SAMPLES[1]))
    assert {name: (tensor.dtype, list(tensor.shape)) for name, tensor in tensors.items()} == {
        "input_ids": (torch.int64, [2]),
        "loss_mask": (torch.int64, [2]),
        "hidden_states": (torch.bfloat16, [2, 2, 4]),
    }


def test_the_size_is_that_of_the_files(folder: Path) -> None:
    sizes = [sample_file(folder, sample).stat().st_size for sample in SAMPLES[:2]]
    assert StoreReader(folder).size == sum(sizes)
    tensors = sum(MANIFEST.states_bytes(len(sample.input_ids)) for sample in SAMPLES[:2])
    assert tensors < sum(sizes) < tensors + 2 * 1024


def test_a_run_goes_on_where_it_stopped(folder: Path) -> None:
    assert set(plan_store(folder, MANIFEST)) == {SAMPLES[0].id, SAMPLES[1].id}
    extract(folder, SAMPLES[2:])
    store = StoreReader(folder)
    assert store.is_complete
    assert torch.equal(store.read(SAMPLES[0].id)[1], make_states(SAMPLES[0]))


def test_an_empty_or_missing_folder_holds_nothing(tmp_path: Path) -> None:
    assert plan_store(tmp_path, MANIFEST) == {}
    assert plan_store(tmp_path / "a" / "b", MANIFEST) == {}
    assert not (tmp_path / "a").exists()


def test_written_but_not_committed_does_not_count(folder: Path) -> None:
    with StoreWriter(folder, MANIFEST) as store:
        store.write(SAMPLES[2], make_states(SAMPLES[2]))
    assert SAMPLES[2].id not in StoreReader(folder).ids


def test_half_a_line_in_the_index_does_not_count(folder: Path) -> None:
    index = folder / "index.jsonl"
    index.write_bytes(index.read_bytes()[:-5])
    assert StoreReader(folder).ids == (SAMPLES[0].id,)
    extract(folder, SAMPLES[1:])
    assert set(StoreReader(folder).ids) == {sample.id for sample in SAMPLES}
    assert all(json.loads(line) for line in index.read_text().splitlines())


def test_leftovers_of_a_kill_are_removed(folder: Path) -> None:
    leftover = folder / "samples" / "x.safetensors.partial"
    leftover.write_bytes(b"half")
    extract(folder, SAMPLES[2:])
    assert not leftover.exists()


def test_a_folder_in_which_a_run_was_killed_at_its_first_file_is_empty(tmp_path: Path) -> None:
    (tmp_path / "manifest.json.partial").write_bytes(b"{")
    assert plan_store(tmp_path, MANIFEST) == {}


def test_a_commit_survives_a_power_cut(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is on disk for sure before its fsync, so the order of the calls is the promise."""
    calls: list[str] = []

    def record(name: str) -> None:
        real = getattr(os, name)

        def recorded(*args: Any) -> Any:
            of = args[0] if name == "rename" else os.readlink(f"/proc/self/fd/{args[0]}")
            calls.append(f"{name} {Path(of).name}")
            return real(*args)

        monkeypatch.setattr(os, name, recorded)

    with StoreWriter(folder, MANIFEST) as store:
        for name in ("fsync", "rename", "write"):
            record(name)
        store.write(SAMPLES[2], make_states(SAMPLES[2]))
        store.commit()
    file = f"{SAMPLES[2].id}.safetensors.partial"
    assert calls == [
        f"fsync {file}",
        f"rename {file}",
        "fsync samples",
        "write index.jsonl",
        "fsync index.jsonl",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"capture_points": (3, 2)}, "capture_points is 3,1 there and 3,2 here"),
        ({"hidden_size": 8}, "hidden_size is 4 there and 8 here"),
        (
            {"target": dataclasses.replace(MANIFEST.target, weights_sha256="0" * 64)},
            r"target.weights_sha256 is dddddddddddd\.\.\. there and 000000000000\.\.\. here",
        ),
        (
            {"dataset": dataclasses.replace(MANIFEST.dataset, sha256="0" * 64)},
            "dataset.sha256 is .* there",
        ),
        (
            {"stack": dataclasses.replace(MANIFEST.stack, versions={})},
            "stack.versions.torch is 1 there and None here",
        ),
        (
            {"stack": StackIdentity("cpu", "e" * 64, {"torch": "1"}, {"01-x.patch": "0"})},
            "stack.patches.01-x.patch is f+... there and 0 here",
        ),
    ],
)
def test_another_run_is_refused(folder: Path, change: dict[str, object], message: str) -> None:
    other = dataclasses.replace(MANIFEST, **change)  # type: ignore[arg-type]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with pytest.raises(StoreError, match=f"holds another run: {message}"):
        plan_store(folder, other)
    with pytest.raises(StoreError, match="holds another run"), StoreWriter(folder, other):
        pass
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StoreError, match=r"not empty and holds no states \(thesis.tex\)"):
        plan_store(tmp_path, MANIFEST)


def test_a_file_where_the_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreError, match="file is a file, not a folder"):
            plan_store(folder, MANIFEST)


def test_a_folder_that_takes_no_files_is_refused() -> None:
    # /proc takes no new files, not even from root.
    with pytest.raises(StoreError, match="cannot write to /proc"):
        plan_store(Path("/proc/states"), MANIFEST)


def test_two_runs_at_once_are_refused(folder: Path) -> None:
    with (
        StoreWriter(folder, MANIFEST),
        pytest.raises(StoreError, match="another run is writing"),
        StoreWriter(folder, MANIFEST),
    ):
        pass
    extract(folder, SAMPLES[2:])


def test_a_flipped_bit_is_found(folder: Path) -> None:
    path = sample_file(folder, SAMPLES[1])
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    store = StoreReader(folder)
    with pytest.raises(StoreError, match=f"{SAMPLES[1].id}.safetensors is damaged: its checksum"):
        store.read(SAMPLES[1].id)
    assert store.read(SAMPLES[0].id)[0] == SAMPLES[0]


def test_a_file_cut_short_is_found_by_plan_and_reader(folder: Path) -> None:
    path = sample_file(folder, SAMPLES[1])
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(StoreError, match=f"{SAMPLES[1].id}.safetensors is damaged"):
        plan_store(folder, MANIFEST)
    with pytest.raises(StoreError, match=f"{SAMPLES[1].id}.safetensors is damaged"):
        StoreReader(folder).read(SAMPLES[1].id)


def test_a_removed_file_is_extracted_again(folder: Path) -> None:
    sample_file(folder, SAMPLES[0]).unlink()
    assert set(plan_store(folder, MANIFEST)) == {SAMPLES[1].id}
    with pytest.raises(StoreError, match=r"cannot read .*: No such file"):
        StoreReader(folder).read(SAMPLES[0].id)
    extract(folder, (SAMPLES[0], SAMPLES[2]))
    assert StoreReader(folder).is_complete
    assert StoreReader(folder).read(SAMPLES[0].id)[0] == SAMPLES[0]


def test_swapped_files_are_found(folder: Path) -> None:
    """Even where the index was made to fit them."""
    first, second = (sample_file(folder, sample) for sample in SAMPLES[:2])
    second.write_bytes(first.read_bytes())
    index = folder / "index.jsonl"
    entries = [json.loads(line) for line in index.read_text().splitlines()]
    entries[1] = {**entries[0], "id": entries[1]["id"]}
    index.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    with pytest.raises(StoreError, match="holds another sample than its name says"):
        StoreReader(folder).read(SAMPLES[1].id)


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
    with (
        StoreWriter(folder, MANIFEST) as store,
        pytest.raises(StoreError, match=f"sample {SAMPLES[2].id}: the states are"),
    ):
        store.write(SAMPLES[2], states)


def test_an_unknown_schema_version_is_refused(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 2}))
    with pytest.raises(StoreError, match="has schema version 2, this program reads 1"):
        StoreReader(folder)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema_version": 1}', "{"])
def test_a_damaged_manifest_is_named(folder: Path, content: str) -> None:
    (folder / "manifest.json").write_text(content)
    with pytest.raises(StoreError, match=r"manifest.json is damaged"):
        StoreReader(folder)


def test_a_damaged_index_is_named(folder: Path) -> None:
    index = folder / "index.jsonl"
    index.write_text("{}\n" + index.read_text())
    with pytest.raises(StoreError, match=r"index.jsonl:1 is damaged"):
        StoreReader(folder)


def test_a_folder_without_states_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"holds no states: there is no manifest.json"):
        StoreReader(tmp_path)


def test_a_disk_that_fails_is_told_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with StoreWriter(folder, MANIFEST) as store:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match="No space left on device; what was committed is safe"):
            store.write(SAMPLES[2], make_states(SAMPLES[2]))
    assert StoreReader(folder).ids == (SAMPLES[0].id, SAMPLES[1].id)


def test_the_manifest_says_what_the_states_are(folder: Path) -> None:
    fields = json.loads((folder / "manifest.json").read_text())
    assert fields["schema_version"] == 1
    assert fields["dtype"] == "bfloat16"
    assert fields["norm_applied"] is False
    assert fields["capture_points"] == [3, 1]
