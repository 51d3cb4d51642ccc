"""In which order samples are seen."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class EpochStart:
    """Where number `epoch` begins: behind so many `batches` of the earlier ones."""

    epoch: int
    batches: int


RUN_START = EpochStart(0, 0)


def epoch_order(samples: int, seed: int, epoch: int) -> Sequence[int]:
    """A permutation of the numbers of `samples` samples: a function of its arguments alone.

    The number of processes has no part in it, so that one process and many see the same.
    """
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(samples).tolist()
