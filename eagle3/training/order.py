"""In which order samples are seen."""

from collections.abc import Sequence

import numpy as np


def epoch_order(samples: int, seed: int, epoch: int) -> Sequence[int]:
    """A permutation of the numbers of `samples` samples: a function of its arguments alone.

    The number of processes has no part in it, so that one process and many see the same.
    """
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(samples).tolist()
