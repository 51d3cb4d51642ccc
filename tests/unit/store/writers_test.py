"""Several processes write rows of one shard in place, as tensor-parallel ranks do."""

import os
from pathlib import Path

import pytest
import torch

from eagle3.store.reader import StoreReader
from eagle3.store.sample import Sample
from eagle3.store.shard_writer import ShardWriter, write_rows
from eagle3.store.writer import StoreWriter
from tests.unit.store.stored import (
    CAPTURE_POINTS,
    HIDDEN_SIZE,
    extract,
    make_manifest,
    make_samples,
    make_states,
)

SAMPLES = make_samples(7)
MANIFEST = make_manifest(SAMPLES)
_ROWS_A_TURN = 2


def write_share(shard: ShardWriter, rank: int, ranks: int) -> None:
    """Writes every `ranks`-th pair of rows, from the last to the first."""
    rows_TLH = torch.cat([make_states(sample) for sample in SAMPLES])
    descriptor = os.open(shard.path, os.O_WRONLY)
    starts = range(rank * _ROWS_A_TURN, len(rows_TLH), ranks * _ROWS_A_TURN)
    for row in reversed(starts):
        write_rows(descriptor, shard.layout, row, rows_TLH[row : row + _ROWS_A_TURN])
    os.close(descriptor)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_bytes_are_those_of_one_writer(tmp_path: Path, ranks: int) -> None:
    extract(tmp_path / "one", MANIFEST, SAMPLES)
    with StoreWriter(tmp_path / "many", MANIFEST) as store:
        shard = store.begin(SAMPLES)
        children = []
        for rank in range(ranks):
            child = os.fork()
            if child == 0:
                exit_code = 1
                try:
                    write_share(shard, rank, ranks)
                    exit_code = 0
                finally:
                    # Never back into pytest, whatever was raised.
                    os._exit(exit_code)
            children.append(child)
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        for sample in SAMPLES:
            shard.accept(sample)
        store.commit()
    assert StoreReader(tmp_path / "many").is_complete
    for name in ("index.jsonl", "shard-00000.safetensors"):
        assert (tmp_path / "many" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


def test_a_system_that_takes_little_at_a_time_gets_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, content, at: real(file, content[:7], at))
    extract(tmp_path, MANIFEST, SAMPLES)
    monkeypatch.undo()
    store = StoreReader(tmp_path)
    for sample in SAMPLES:
        assert torch.equal(store.read(sample.id)[1], make_states(sample))


def mapped_bytes(path: Path) -> int:
    """How much of the file this process holds in memory, by proc_pid_smaps(5)."""
    held, is_path = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(maxsplit=1)[0]:
            is_path = line.endswith(f" {path}")
        elif is_path and line.startswith("Rss:"):
            held += 1024 * int(line.split()[1])
    return held


def test_rows_that_were_accepted_leave_the_memory(tmp_path: Path) -> None:
    # So long that what the kernel maps around a page, 64 KiB, is little beside them.
    lengths = (200_000, 300_000)
    samples = tuple(Sample(tuple(range(n)), (1,) * n) for n in lengths)
    sizes = [len(CAPTURE_POINTS) * HIDDEN_SIZE * 2 * n for n in lengths]
    with StoreWriter(tmp_path, make_manifest(samples)) as store:
        shard = store.begin(samples)
        descriptor = os.open(shard.path, os.O_WRONLY)
        for sample in samples:
            write_rows(descriptor, shard.layout, shard.offset(sample), make_states(sample))
        os.close(descriptor)
        looked_at = [store.written_states(sample).clone() for sample in samples]
        assert mapped_bytes(shard.path) >= sum(sizes)
        store.accept(samples[1])
        assert sizes[0] <= mapped_bytes(shard.path) < sum(sizes)
        store.accept(samples[0])
        # The pages at the rows' ends, and the tables.
        assert mapped_bytes(shard.path) < sizes[0] / 4
        store.commit()
    reader = StoreReader(tmp_path)
    for sample, states_TLH in zip(samples, looked_at, strict=True):
        assert torch.equal(reader.read(sample.id)[1], states_TLH)
        assert torch.equal(states_TLH, make_states(sample))
