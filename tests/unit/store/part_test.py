"""Several machines share the work of one folder; what they wrote is one store."""

import dataclasses
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from eagle3.errors import InputError, StoreError
from eagle3.store.merge import merge_parts
from eagle3.store.part import Part, parse_part, part_of_process
from eagle3.store.plan import plan_store
from eagle3.store.reader import StoreReader
from eagle3.store.sample import Sample
from eagle3.store.writer import StoreWriter
from tests.unit.store import stored
from tests.unit.store.stored import contents, make_manifest, make_samples, make_states

SAMPLES = make_samples(20)
MANIFEST = make_manifest(SAMPLES)


def extract(folder: Path, part: Part, limit: int | None = None) -> int:
    """Extracts at most `limit` missing samples of `part`, and returns how many it did."""
    done = plan_store(folder, MANIFEST, part)
    missing = [s for s in SAMPLES if part.holds(s.id) and s.id not in done][:limit]
    for sample in missing:
        stored.extract(part.folder(folder), MANIFEST, [sample])
    return len(missing)


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, tuple[Sample, bytes]]:
    """What one run without parts leaves."""
    extract(tmp_path / "whole", Part())
    return contents(tmp_path / "whole")


def test_parts_do_all_of_the_work_without_overlap() -> None:
    for count in (1, 2, 3, 16):
        shares = [{s.id for s in SAMPLES if Part(n, count).holds(s.id)} for n in range(count)]
        assert sum(map(len, shares)) == len(SAMPLES)
        assert set().union(*shares) == {sample.id for sample in SAMPLES}


def test_parts_are_read_as_one(tmp_path: Path, whole: dict[str, Any]) -> None:
    folder = tmp_path / "store"
    done = [extract(folder, Part(number, 3)) for number in range(3)]
    assert all(0 < count < 20 for count in done)
    assert contents(folder) == whole
    store = StoreReader(folder)
    assert store.is_complete
    assert store.parts == ("part-00000-of-00003", "part-00001-of-00003", "part-00002-of-00003")
    assert store.entries[SAMPLES[0].id].shard.startswith("part-0000")


def test_no_part_writes_what_another_writes(tmp_path: Path) -> None:
    extract(tmp_path, Part(0, 2))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    extract(tmp_path, Part(1, 2))
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert before.items() <= after.items()


@pytest.mark.parametrize("next_parts", [(Part(),), (Part(0, 2), Part(1, 2))])
def test_the_number_of_parts_may_change(
    tmp_path: Path, whole: dict[str, Any], next_parts: tuple[Part, ...]
) -> None:
    folder = tmp_path / "store"
    first = sum(extract(folder, Part(number, 3), limit=2) for number in range(3))
    assert first == 6
    assert sum(extract(folder, part) for part in next_parts) == 14
    assert contents(folder) == whole


def test_a_part_of_another_run_is_refused(tmp_path: Path) -> None:
    extract(tmp_path, Part(0, 2))
    other = dataclasses.replace(MANIFEST, capture_points=(1, 3))
    with pytest.raises(StoreError, match="part-00000-of-00002 holds another run: capture_points"):
        plan_store(tmp_path, other, Part(1, 2))
    stored.extract(tmp_path / "part-00001-of-00002", other, SAMPLES[:1])
    with pytest.raises(StoreError, match=r"part-00001-of-00002 does not belong with .* capture_p"):
        StoreReader(tmp_path)


@pytest.mark.parametrize("links", [True, False])
def test_merged_parts_are_one_store(
    tmp_path: Path, whole: dict[str, Any], links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "store"
    for number in range(3):
        extract(folder, Part(number, 3))

    def no_links(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    assert merge_parts(folder) == 3
    assert contents(folder) == whole
    names = {path.name for path in folder.iterdir()}
    assert names == {"manifest.json", "index.jsonl", *StoreReader(folder).shards}
    counts = StoreReader(folder).manifest.counts
    assert counts is not None
    assert counts.samples == 20
    assert merge_parts(folder) == 0


def test_a_merge_into_a_store_that_has_samples_keeps_them(
    tmp_path: Path, whole: dict[str, Any]
) -> None:
    folder = tmp_path / "store"
    extract(folder, Part(), limit=5)
    extract(folder, Part(0, 2))
    extract(folder, Part(1, 2))
    assert merge_parts(folder) == 2
    assert contents(folder) == whole


def test_a_merge_carries_what_was_set_aside(tmp_path: Path) -> None:
    part = Part(0, 2)
    sample = next(sample for sample in SAMPLES if part.holds(sample.id))
    with StoreWriter(part.folder(tmp_path), MANIFEST) as store:
        store.begin([sample])
        store.quarantine(sample, "constant", "data:1")
        store.commit()
    merge_parts(tmp_path)
    assert set(StoreReader(tmp_path).quarantined) == {sample.id}


def test_a_part_that_is_written_to_is_not_merged(tmp_path: Path) -> None:
    extract(tmp_path, Part(0, 2), limit=2)
    with (
        StoreWriter(Part(0, 2).folder(tmp_path), MANIFEST),
        pytest.raises(StoreError, match=r"another run is writing to .*part-00000"),
    ):
        merge_parts(tmp_path)


def test_a_merge_that_is_killed_goes_on(tmp_path: Path, whole: dict[str, Any]) -> None:
    moment = 0
    killed = True
    while killed:
        moment += 1
        folder = tmp_path / str(moment)
        for number in range(2):
            for sample in [s for s in SAMPLES[:4] if Part(number, 2).holds(s.id)]:
                stored.extract(Part(number, 2).folder(folder), MANIFEST, [sample])
        killed = merge_and_die(folder, moment)
        expected = {sample.id: whole[sample.id] for sample in SAMPLES[:4]}
        assert contents(folder) == expected, moment
        merge_parts(folder)
        assert contents(folder) == expected, moment
        left = {"manifest.json", "index.jsonl", *StoreReader(folder).shards}
        assert stored.names(folder) == left, moment
    assert moment > 4 * 5


def merge_and_die(folder: Path, moment: int) -> bool:
    child = os.fork()
    if child == 0:
        exit_code = 1
        try:
            _kill_at(moment)
            merge_parts(folder)
            exit_code = 0
        finally:
            # Never back into pytest, whatever was raised.
            os._exit(exit_code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def _kill_at(moment: int) -> None:
    passed = 0

    def hook(name: str) -> None:
        real = getattr(os, name)

        def hooked(*args: Any, **extra: Any) -> Any:
            nonlocal passed
            passed += 1
            if passed == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **extra)

        setattr(os, name, hooked)

    for name in ("write", "fsync", "rename", "link", "unlink", "rmdir"):
        hook(name)


@pytest.mark.parametrize(
    ("environment", "part"),
    [
        ({}, Part(0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, Part(3, 8)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, Part(0, 4)),
        ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, Part(1, 2)),
        ({"RANK": "1"}, Part(0, 1)),
    ],
)
def test_launchers_say_which_part_is_ours(environment: Mapping[str, str], part: Part) -> None:
    assert part_of_process(environment) == part


@pytest.mark.parametrize("text", ["", "1", "2/2", "-1/2", "0/0", "1/2/3", "a/b", " 0/2"])
def test_a_share_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no share of the work; give i/N"):
        parse_part(text)


def test_a_share_reads_as_it_was_given() -> None:
    assert str(parse_part("15/16")) == "15/16"
    assert make_states(SAMPLES[0]).shape[0] == 1
