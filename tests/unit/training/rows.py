"""Packed rows with random tokens and states."""

import torch

from eagle3.training.batch import PADDING, PackedBatch

POINTS = 4


def packed(
    lengths: list[int],
    *,
    padding: int = 0,
    vocab_size: int,
    hidden_size: int,
    supervised: float = 0.7,
    seed: int = 0,
) -> PackedBatch:
    """Documents of these lengths and then padding; each token is supervised with that chance."""
    generator = torch.Generator().manual_seed(seed)
    rows = sum(lengths) + padding
    documents = [number for number, length in enumerate(lengths) for _ in range(length)]
    positions = [position for length in lengths for position in range(length)]
    states_TLH = torch.randn(rows, POINTS, hidden_size, generator=generator)
    return PackedBatch(
        torch.randint(vocab_size, (rows,), generator=generator),
        states_TLH.to(torch.bfloat16),
        torch.rand(rows, generator=generator) < supervised,
        torch.tensor(documents + [PADDING] * padding, dtype=torch.int32),
        torch.tensor(positions + [0] * padding),
    )
