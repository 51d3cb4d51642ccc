"""Batches that fill the target's steps, and shards that are filled with batches."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable

from eagle3.store.sample import Sample


def fill_batches(samples: Iterable[Sample], max_tokens: int) -> list[list[Sample]]:
    """Cuts `samples` into batches of at most `max_tokens` tokens together.

    Each batch takes the longest sample that is left, and then again and again the longest that
    still fits. A sample that is longer than `max_tokens` is a batch of its own: the engine runs it
    in several steps. The order of `samples` makes no difference.
    """
    by_length = defaultdict(list)
    for sample in sorted(samples, key=lambda sample: sample.id):
        by_length[len(sample.input_ids)].append(sample)
    lengths = sorted(by_length)
    batches = []
    while lengths:
        batch = []
        room = max_tokens
        fitting = len(lengths)
        while fitting:
            length = lengths[fitting - 1]
            batch.append(by_length[length].pop())
            if not by_length[length]:
                del lengths[fitting - 1]
            room -= length
            fitting = bisect_right(lengths, room)
        batches.append(batch)
    return batches


def fill_shards(
    batches: Iterable[list[Sample]], shard_bytes: int, size: Callable[[Sample], int]
) -> list[list[list[Sample]]]:
    """Cuts `batches`, in their order, into shards of at most `shard_bytes` bytes.

    `size` tells the bytes of a sample. A batch that is larger than `shard_bytes` is a shard.
    """
    shards: list[list[list[Sample]]] = []
    room = 0
    for batch in batches:
        needed = sum(map(size, batch))
        if needed > room:
            shards.append([])
            room = shard_bytes
        shards[-1].append(batch)
        room -= needed
    return shards
