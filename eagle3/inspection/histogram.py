"""How many values fall into each of a few equal ranges."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

_MOST_BARS = 48


@dataclass(frozen=True)
class Histogram:
    """`counts[i]` of the values are whole numbers from `edges[i]` to `edges[i + 1] - 1`."""

    edges: tuple[int, ...]
    counts: tuple[int, ...]


def make_histogram(values: Iterable[int]) -> Histogram:
    """Of whole numbers from 1 on; no bars where there are no values."""
    counted = np.fromiter(values, np.int64)
    if not counted.size:
        return Histogram((1,), ())
    longest = int(counted.max())
    step = -(-longest // _MOST_BARS)
    edges = np.arange(1, longest + step + 1, step)
    counts, _ = np.histogram(counted, edges)
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()))
