"""A manifest and samples with states that follow from their tokens."""

from collections.abc import Sequence
from pathlib import Path

import torch

from eagle3.store.manifest import DatasetIdentity, Manifest, StackIdentity, TargetIdentity
from eagle3.store.reader import StoreReader
from eagle3.store.sample import Sample, dataset_digest
from eagle3.store.writer import StoreWriter

CAPTURE_POINTS = (3, 1)
HIDDEN_SIZE = 4


def make_samples(count: int) -> tuple[Sample, ...]:
    """Different samples of 1 to `count` tokens."""
    return tuple(Sample(tuple(range(n, 2 * n)), (1,) * n) for n in range(1, count + 1))


def make_manifest(samples: tuple[Sample, ...], hidden_size: int = HIDDEN_SIZE) -> Manifest:
    return Manifest(
        target=TargetIdentity("/models/tiny", "c" * 64, "d" * 64),
        tokenizer_sha256="b" * 64,
        dataset=DatasetIdentity(
            len(samples), sum(len(s.input_ids) for s in samples), dataset_digest(samples)
        ),
        stack=StackIdentity("cpu", "e" * 64, {"torch": "1"}, {"01-x.patch": "f" * 64}),
        capture_points=CAPTURE_POINTS,
        hidden_size=hidden_size,
        command="extract --out store",
    )


def make_states(sample: Sample) -> torch.Tensor:
    """bf16 [T, L, H], different for every token and capture point."""
    tokens_T = torch.tensor(sample.input_ids)
    points_L = torch.tensor(CAPTURE_POINTS)
    units_H = torch.arange(1, HIDDEN_SIZE + 1)
    return (tokens_T[:, None, None] * 8 + points_L[:, None] + units_H / 8).to(torch.bfloat16)


def extract(folder: Path, manifest: Manifest, samples: Sequence[Sample]) -> None:
    """Commits `samples` to the store in `folder` as one shard."""
    with StoreWriter(folder, manifest) as store:
        store.begin(samples)
        for sample in samples:
            store.write(sample, make_states(sample))
        store.commit()


def names(folder: Path) -> set[str]:
    """What lies in a store's folder.

    Where no file without a name can be made (FUSE), a kill may leave the one that tried the folder.
    """
    return {path.name for path in folder.iterdir() if not path.name.startswith(".eagle3-probe-")}


def contents(folder: Path) -> dict[str, tuple[Sample, bytes]]:
    """Every committed sample with the bytes of its states, by id."""
    store = StoreReader(folder)
    return {sample_id: _content(*store.read(sample_id)) for sample_id in store.ids}


def _content(sample: Sample, hidden_states_TLH: torch.Tensor) -> tuple[Sample, bytes]:
    return sample, hidden_states_TLH.view(torch.uint8).numpy().tobytes()
