"""Which samples lie together in a shard."""

from collections.abc import Callable, Iterable, Iterator

from eagle3.store.sample import Sample


def fill_shards(
    samples: Iterable[Sample], shard_bytes: int, size: Callable[[Sample], int]
) -> Iterator[list[Sample]]:
    """Cuts `samples` into shards of at most `shard_bytes` bytes; `size` tells those of a sample.

    Samples come in the order of their ids, so that the order of the data makes no difference, and
    short and long ones are mixed. A sample that is larger than `shard_bytes` is a shard.
    """
    shard: list[Sample] = []
    room = shard_bytes
    for sample in sorted(samples, key=lambda sample: sample.id):
        needed = size(sample)
        if shard and needed > room:
            yield shard
            shard, room = [], shard_bytes
        shard.append(sample)
        room -= needed
    if shard:
        yield shard
