"""Operations on files: what the kernel is told early, and who may write."""

import os
from pathlib import Path

import pytest

from eagle3.errors import StoreError
from eagle3.store import shard_writer
from eagle3.store.durable import locked, start_sync
from eagle3.store.shard_writer import write_rows
from eagle3.store.writer import StoreWriter
from tests.unit.store.stored import make_manifest, make_samples, make_states


def test_the_kernel_takes_a_part_of_a_file(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(3 * 4096))
        file.flush()
        assert start_sync(file.fileno(), 4096, 4096)


def test_a_folder_is_locked_by_one_alone(tmp_path: Path) -> None:
    with locked(tmp_path):
        with pytest.raises(StoreError, match=rf"another run is writing to {tmp_path}; wait for it"):
            locked(tmp_path).__enter__()
        with pytest.raises(StoreError, match="another run is writing to the dataset; wait for it"):
            locked(tmp_path, Path("the dataset")).__enter__()
    with locked(tmp_path):
        pass


def test_what_cannot_be_synced_is_no_error() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"rows")
    assert not start_sync(writing, 0, 4)
    os.close(reading)
    os.close(writing)


def test_the_disk_begins_with_a_sample_when_it_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[str, int, int]] = []

    def record(descriptor: int, position: int, size: int) -> bool:
        begun.append((os.readlink(f"/proc/self/fd/{descriptor}"), position, size))
        return start_sync(descriptor, position, size)

    monkeypatch.setattr(shard_writer, "start_sync", record)
    samples = make_samples(3)
    with StoreWriter(tmp_path, make_manifest(samples)) as store:
        shard = store.begin(samples)
        descriptor = os.open(shard.path, os.O_WRONLY)
        for sample in samples:
            offset = shard.offset(sample)
            rows = write_rows(descriptor, shard.layout, offset, make_states(sample))
            store.accept(sample)
            assert begun.pop() == (str(shard.path), shard.layout.row_start(offset), len(rows))
            assert not begun
        os.close(descriptor)
        store.commit()
