"""Prompts of random tokens."""

import random
from collections.abc import Sequence


def random_prompts(lengths: Sequence[int], vocab_size: int, seed: int = 0) -> list[list[int]]:
    """One prompt for each length, of ordinary tokens."""
    source = random.Random(seed)
    return [[source.randrange(8, vocab_size) for _ in range(length)] for length in lengths]
