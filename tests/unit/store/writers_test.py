"""Several processes write rows of one shard in place, as tensor-parallel ranks do."""

import os
from pathlib import Path

import pytest
import torch

from eagle3.store.reader import StoreReader
from eagle3.store.shard_writer import ShardWriter, write_rows
from eagle3.store.writer import StoreWriter
from tests.unit.store.stored import extract, make_manifest, make_samples, make_states

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
