"""Which samples lie together in a shard, or are checked together."""

from collections.abc import Callable, Iterable, Iterator

from eagle3.store.sample import Sample


def fill_groups(
    samples: Iterable[Sample], group_bytes: int, size: Callable[[Sample], int]
) -> Iterator[list[Sample]]:
    """Cuts `samples` into groups of at most `group_bytes` bytes; `size` tells those of a sample.

    Samples come in the order of their ids, so that the order of the data makes no difference, and
    short and long ones are mixed. A sample that is larger than `group_bytes` is a group.
    """
    group: list[Sample] = []
    room = group_bytes
    for sample in sorted(samples, key=lambda sample: sample.id):
        needed = size(sample)
        if group and needed > room:
            yield group
            group, room = [], group_bytes
        group.append(sample)
        room -= needed
    if group:
        yield group
