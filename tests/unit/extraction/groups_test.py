"""Groups hold every sample once, up to their size."""

import random

from eagle3.extraction.groups import fill_groups
from eagle3.store.sample import Sample


def make_samples(*lengths: int) -> list[Sample]:
    return [Sample((number,) * length, (1,) * length) for number, length in enumerate(lengths)]


def tokens(sample: Sample) -> int:
    return len(sample.input_ids)


def test_no_sample_is_lost_doubled_or_over_the_size() -> None:
    chance = random.Random(0)
    samples = make_samples(*(chance.randint(1, 400) for _ in range(1000)))
    groups = list(fill_groups(samples, 1000, tokens))
    assert sorted(sample.id for group in groups for sample in group) == sorted(
        sample.id for sample in samples
    )
    filled = [sum(map(tokens, group)) for group in groups]
    assert max(filled) <= 1000
    # Nothing that would still have fitted was left to the next one.
    for full, following in zip(filled, groups[1:], strict=False):
        assert full + tokens(following[0]) > 1000


def test_the_order_of_the_data_makes_no_difference() -> None:
    samples = make_samples(3, 3, 3, 5, 5, 1)
    assert list(fill_groups(samples, 6, tokens)) == list(fill_groups(samples[::-1], 6, tokens))


def test_a_sample_larger_than_a_group_is_one() -> None:
    large, small = make_samples(20, 2)
    groups = list(fill_groups([large, small], 10, tokens))
    assert sorted(map(len, groups)) == [1, 1]


def test_nothing_gives_no_groups() -> None:
    assert list(fill_groups([], 10, tokens)) == []
