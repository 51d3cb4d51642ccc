"""What is damaged, foreign, in use or out of space is named, and nothing is lost."""

import dataclasses
import json
import os
import resource
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from eagle3.errors import StoreError
from eagle3.store.manifest import StackIdentity
from eagle3.store.plan import plan_store
from eagle3.store.reader import StoreReader
from eagle3.store.sample import Sample
from eagle3.store.writer import StoreWriter
from tests.unit.store import stored
from tests.unit.store.stored import make_manifest, make_samples, make_states

SAMPLES = make_samples(3)
MANIFEST = make_manifest(SAMPLES)
SHARD = "shard-00000.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store in which the first two of three samples are committed."""
    folder = tmp_path / "store"
    extract(folder, SAMPLES[:2])
    return folder


def extract(folder: Path, samples: tuple[Sample, ...]) -> None:
    stored.extract(folder, MANIFEST, samples)


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
            {"target": dataclasses.replace(MANIFEST.target, config_sha256="0" * 64)},
            "target.config_sha256 is cccc",
        ),
        ({"tokenizer_sha256": "0" * 64}, "tokenizer_sha256 is bbbbbbbbbbbb"),
        (
            {"dataset": dataclasses.replace(MANIFEST.dataset, sha256="0" * 64)},
            "dataset.sha256 is .* there",
        ),
        (
            {"stack": dataclasses.replace(MANIFEST.stack, digest="0" * 64)},
            "stack.digest is eeee",
        ),
        (
            {"stack": dataclasses.replace(MANIFEST.stack, versions={})},
            "stack.versions.torch is 1 there and None here",
        ),
        (
            {"stack": StackIdentity("cpu", "e" * 64, {"torch": "1"}, {"01-x.patch": "0"})},
            "stack.patches.01-x.patch is f+... there and 0 here",
        ),
        ({"norm_applied": True}, "norm_applied is False there and True here"),
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


def test_the_machine_makes_no_difference(folder: Path) -> None:
    target = dataclasses.replace(MANIFEST.target, path="/elsewhere/tiny")
    other = dataclasses.replace(MANIFEST, target=target, command="extract --tp 8")
    assert SAMPLES[0].id in plan_store(folder, other)


def test_what_a_killed_run_left_of_trying_the_folder_is_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a file system whose files cannot be without a name.
    monkeypatch.setattr(
        tempfile, "TemporaryFile", partial(tempfile.NamedTemporaryFile, delete=False)
    )
    plan_store(tmp_path, MANIFEST)
    assert len(list(tmp_path.iterdir())) == 1
    plan_store(tmp_path, MANIFEST)


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


def test_two_runs_at_once_are_found_out_without_locks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    def the_other_commits() -> None:
        index = folder / "index.jsonl"
        index.write_bytes(index.read_bytes() + index.read_bytes())

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(StoreError, match=r"another run has written to .*index.jsonl"):
        extract_while(folder, the_other_commits)
    assert set(stored.contents(folder)) == {sample.id for sample in SAMPLES[:2]}


def extract_while(folder: Path, meanwhile: Callable[[], None]) -> None:
    """Extracts the third sample; `meanwhile` happens before its rows come."""
    with StoreWriter(folder, MANIFEST) as store:
        store.begin(SAMPLES[2:])
        meanwhile()
        store.write(SAMPLES[2], make_states(SAMPLES[2]))
        store.commit()


@pytest.mark.parametrize("place", ["rows", "ids", "mask"])
def test_a_flipped_bit_is_found_and_the_sample_named(folder: Path, place: str) -> None:
    content = bytearray((folder / SHARD).read_bytes())
    position = {"rows": 4096 + 16 + 5, "ids": 4096 + 48 + 8, "mask": len(content) - 1}[place]
    content[position] ^= 0b100
    (folder / SHARD).write_bytes(content)
    store = StoreReader(folder)
    with pytest.raises(
        StoreError,
        match=rf"sample {SAMPLES[1].id} \(rows 1 to 3 of .*{SHARD}\) is damaged: its checksum",
    ):
        store.read(SAMPLES[1].id)
    assert store.read(SAMPLES[0].id)[0] == SAMPLES[0]


def test_a_flipped_bit_in_the_header_or_the_offsets_is_found(folder: Path) -> None:
    whole = (folder / SHARD).read_bytes()
    for position in (0, 20, 4096 + 48 + 24 + 16):
        content = bytearray(whole)
        content[position] ^= 1
        (folder / SHARD).write_bytes(content)
        with pytest.raises(StoreError, match=f"{SHARD} is damaged: its header"):
            StoreReader(folder).read(SAMPLES[0].id)
        with pytest.raises(StoreError, match=f"{SHARD} is damaged: its header"):
            plan_store(folder, MANIFEST)


@pytest.mark.parametrize("cut", [1, 60, 4096, 5000])
def test_a_truncated_shard_is_found_before_anything_is_written(folder: Path, cut: int) -> None:
    content = (folder / SHARD).read_bytes()
    (folder / SHARD).write_bytes(content[: max(0, len(content) - cut)])
    for look in (lambda: plan_store(folder, MANIFEST), lambda: extract(folder, SAMPLES[2:])):
        with pytest.raises(StoreError, match=f"{SHARD} is damaged: .* remove it and run extract"):
            look()
    with pytest.raises(StoreError, match=f"{SHARD} is damaged"):
        StoreReader(folder).read(SAMPLES[0].id)
    # What the message says to do does help.
    (folder / SHARD).unlink()
    extract(folder, SAMPLES)
    assert StoreReader(folder).is_complete


def test_a_shard_that_grew_is_found(folder: Path) -> None:
    with (folder / SHARD).open("ab") as shard:
        shard.write(b"x")
    with pytest.raises(StoreError, match=r"it has [\d,]+ bytes, [\d,]+ were written"):
        StoreReader(folder).read(SAMPLES[0].id)


def test_a_removed_shard_is_missing_work(folder: Path) -> None:
    extract(folder, SAMPLES[2:])
    (folder / SHARD).unlink()
    assert set(plan_store(folder, MANIFEST).committed) == {SAMPLES[2].id}
    with pytest.raises(StoreError, match=r"cannot read .*: No such file"):
        StoreReader(folder).read(SAMPLES[0].id)
    with StoreWriter(folder, MANIFEST):
        pass
    assert StoreReader(folder).ids == (SAMPLES[2].id,)
    extract(folder, SAMPLES[:2])
    assert StoreReader(folder).is_complete
    assert StoreReader(folder).read(SAMPLES[0].id)[0] == SAMPLES[0]


def test_an_index_that_names_another_sample_is_found(folder: Path) -> None:
    index = folder / "index.jsonl"
    first, second = [json.loads(line) for line in index.read_text().splitlines()]
    index.write_text(json.dumps({**first, "id": second["id"]}) + "\n")
    with pytest.raises(StoreError, match="it is another sample than its id says"):
        StoreReader(folder).read(SAMPLES[1].id)


def test_an_index_that_points_between_samples_is_found(folder: Path) -> None:
    index = folder / "index.jsonl"
    line = json.loads(index.read_text().splitlines()[0])
    for change in ({"offset": 1}, {"length": 2}, {"offset": 7}, {"offset": -1}):
        index.write_text(json.dumps({**line, **change}) + "\n")
        with pytest.raises(StoreError, match="its rows are not those of a sample"):
            StoreReader(folder).read(SAMPLES[0].id)


def test_a_shard_of_other_states_is_found(folder: Path) -> None:
    path = folder / "manifest.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({**fields, "capture_points": [1, 3]}))
    with pytest.raises(StoreError, match=r"holds other states than manifest.json says"):
        StoreReader(folder).read(SAMPLES[0].id)


@pytest.mark.parametrize("version", [1, 3, "2"])
def test_an_unknown_schema_version_is_refused(folder: Path, version: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": version}))
    with pytest.raises(StoreError, match=f"has schema version {version}, this program reads 2"):
        StoreReader(folder)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema_version": 2}', "{"])
def test_a_damaged_manifest_is_named(folder: Path, content: str) -> None:
    (folder / "manifest.json").write_text(content)
    with pytest.raises(StoreError, match=r"manifest.json is damaged"):
        StoreReader(folder)


def test_a_damaged_index_is_named(folder: Path) -> None:
    index = folder / "index.jsonl"
    index.write_text("{}\n" + index.read_text())
    with pytest.raises(StoreError, match=r"index.jsonl:1 is damaged"):
        StoreReader(folder)


def test_a_damaged_quarantine_is_named(folder: Path) -> None:
    (folder / "quarantine.jsonl").write_text("{}\n")
    with pytest.raises(StoreError, match=r"quarantine.jsonl is damaged"):
        StoreReader(folder)


def test_a_folder_without_states_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"holds no states: there is no manifest.json"):
        StoreReader(tmp_path)


def test_a_file_is_no_store(folder: Path) -> None:
    with pytest.raises(StoreError, match=r"index.jsonl holds no states: there is no manifest.json"):
        StoreReader(folder / "index.jsonl")


def test_a_manifest_that_cannot_be_read_is_not_called_damaged(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").mkdir()
    with pytest.raises(StoreError, match=r"cannot read .*manifest.json: Is a directory$"):
        StoreReader(folder)


def test_a_disk_that_fails_is_told_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError, match="No space left on device; what was committed is safe"):
        extract_while(folder, lambda: monkeypatch.setattr(os, "fsync", full))
    assert StoreReader(folder).ids == (SAMPLES[0].id, SAMPLES[1].id)
    monkeypatch.undo()
    # The rows were whole, so the next run need not write them again.
    assert SAMPLES[2].id in plan_store(folder, MANIFEST)


def test_an_index_that_takes_half_a_line_is_as_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = folder / "index.jsonl"
    before = index.read_bytes()
    real = os.write

    def full(descriptor: int, content: bytes) -> int:
        is_index = os.path.samestat(os.fstat(descriptor), index.stat())
        return real(descriptor, content[: len(content) // 2] if is_index else content)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreError, match="the index took only a part of its lines"):
        extract(folder, SAMPLES[2:])
    assert index.read_bytes() == before
    monkeypatch.undo()
    with StoreWriter(folder, MANIFEST):
        pass
    assert set(StoreReader(folder).ids) == {sample.id for sample in SAMPLES}


def in_a_child(body: Callable[[], None]) -> int:
    """Runs `body` in a process of its own; 0 where it raised nothing."""
    child = os.fork()
    if child == 0:
        exit_code = 1
        try:
            body()
            exit_code = 0
        finally:
            # Never back into pytest, whatever was raised.
            os._exit(exit_code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("limit", [100, 4100, 100_000, 1_000_000])
def test_a_file_that_may_not_grow_is_told_and_nothing_committed_is_lost(
    folder: Path, limit: int
) -> None:
    """The system's limit on file sizes acts as a full disk does, at a byte of our choice."""
    big = Sample(tuple(range(70_000)), (1,) * 70_000)

    def body() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with pytest.raises(StoreError, match="File too large; what was committed is safe"):
            extract(folder, (big,))

    before = stored.contents(folder)
    assert in_a_child(body) == 0
    assert stored.contents(folder) == before
    extract(folder, (big,))
    assert torch.equal(StoreReader(folder).read(big.id)[1], make_states(big))


def test_a_folder_that_vanishes_is_told_in_one_line(folder: Path) -> None:
    with pytest.raises(StoreError, match="No such file or directory; what was committed is safe"):
        extract_while(folder, lambda: shutil.rmtree(folder))
