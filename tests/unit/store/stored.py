"""A manifest and samples with states that follow from their tokens."""

import torch

from eagle3.store.manifest import DatasetIdentity, Manifest, StackIdentity, TargetIdentity
from eagle3.store.sample import Sample, dataset_digest

CAPTURE_POINTS = (3, 1)
HIDDEN_SIZE = 4


def make_samples(count: int) -> tuple[Sample, ...]:
    """Different samples of 1 to `count` tokens."""
    return tuple(Sample(tuple(range(n, 2 * n)), (1,) * n) for n in range(1, count + 1))


def make_manifest(samples: tuple[Sample, ...]) -> Manifest:
    return Manifest(
        target=TargetIdentity("tiny", "c" * 64, "d" * 64),
        dataset=DatasetIdentity(
            len(samples), sum(len(s.input_ids) for s in samples), dataset_digest(samples)
        ),
        stack=StackIdentity("cpu", "e" * 64, {"torch": "1"}, {"01-x.patch": "f" * 64}),
        capture_points=CAPTURE_POINTS,
        hidden_size=HIDDEN_SIZE,
    )


def make_states(sample: Sample) -> torch.Tensor:
    """bf16 [T, L, H], different for every token and capture point."""
    tokens_T = torch.tensor(sample.input_ids)
    points_L = torch.tensor(CAPTURE_POINTS)
    units_H = torch.arange(1, HIDDEN_SIZE + 1)
    return (tokens_T[:, None, None] * 8 + points_L[:, None] + units_H / 8).to(torch.bfloat16)
