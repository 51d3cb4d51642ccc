"""Draws the next token of all seeded sequences at once.

vLLM 0.16.0 fills a row of noise over the whole vocabulary for each sequence with a seed, one kernel
a sequence: for 512 of them launching takes longer than a small target's own step. Here a sequence
takes one number of its seed's and reads the token off its own distribution.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    import torch

# SplitMix64 (Steele, Lea and Flood, 2014): the step of its counter and the factors of its mixing.
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
# What vLLM moves a generator back by where it throws a token away.
_OFFSETS_A_DRAW = 4


class Generator(Protocol):
    """What is asked of a `torch.Generator` on a GPU: a seed, and how far it was used."""

    def initial_seed(self) -> int: ...
    def get_offset(self) -> int: ...
    def set_offset(self, offset: int) -> None: ...


class SeededDraws:
    """Mixed into vLLM's worker, by name."""

    def draw_at_once(self) -> None:
        """From now on sequences with a seed draw together; on a CPU vLLM does it its own way."""
        from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

        # Where the sampler looks the function up whenever it draws.
        vars(sys.modules[TopKTopPSampler.__module__])["random_sample"] = random_sample


def random_sample(probs_BV: "torch.Tensor", generators: Mapping[int, Generator]) -> "torch.Tensor":
    """A token for each of B distributions over V tokens, [B]; overwrites `probs_BV`.

    `generators`: those of the rows that have a seed. Their token depends on nothing but
    distribution, seed and how many were drawn before.
    """
    import torch

    # vLLM keeps them in the order in which their requests came.
    rows = sorted(generators)
    numbers = uniform([generators[row] for row in rows])
    if len(rows) == len(probs_BV):
        return _read_off(probs_BV, numbers)
    seeded = _read_off(probs_BV[rows], numbers) if rows else None
    noise_BV = torch.empty_like(probs_BV).exponential_()
    drawn_B = probs_BV.div_(noise_BV).argmax(dim=-1)
    if seeded is not None:
        drawn_B[rows] = seeded
    return drawn_B


def _read_off(probs_BV: "torch.Tensor", numbers_B: np.ndarray) -> "torch.Tensor":
    import torch

    numbers = torch.from_numpy(numbers_B)
    if probs_BV.is_cuda:
        # A copy from pinned memory does not wait for the target.
        numbers = numbers.pin_memory()
    numbers_B1 = numbers.to(probs_BV.device, non_blocking=True).unsqueeze(1)
    sums_BV = probs_BV.cumsum(dim=-1, dtype=torch.float64)
    # The first token whose sum exceeds the number: never one of probability 0.
    drawn_B1 = torch.searchsorted(sums_BV, numbers_B1 * sums_BV[:, -1:], right=True)
    return drawn_B1.squeeze(1).clamp_(max=probs_BV.shape[1] - 1)


def uniform(generators: Sequence[Generator]) -> np.ndarray:
    """The next number of each generator, [B] in float64, 0 <= number < 1."""
    offsets = [generator.get_offset() for generator in generators]
    for generator, offset in zip(generators, offsets, strict=True):
        generator.set_offset(offset + _OFFSETS_A_DRAW)
    seeds = np.array([generator.initial_seed() for generator in generators], dtype=np.uint64)
    draws = np.array(offsets, dtype=np.uint64) // np.uint64(_OFFSETS_A_DRAW) + np.uint64(1)
    mixed = _mix(_mix(seeds) + draws * _GAMMA)
    return (mixed >> np.uint64(11)) * 2.0**-53


def _mix(values: np.ndarray) -> np.ndarray:
    for shift, factor in _FACTORS:
        values = (values ^ (values >> shift)) * factor
    return values ^ (values >> np.uint64(31))
