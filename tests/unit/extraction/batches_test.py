"""Batches hold every sample once and fill the steps; shards hold every batch once."""

import random

from eagle3.extraction.batches import fill_batches, fill_shards
from eagle3.store.sample import Sample


def make_samples(*lengths: int) -> list[Sample]:
    return [Sample((number,) * length, (1,) * length) for number, length in enumerate(lengths)]


def lengths(batches: list[list[Sample]]) -> list[list[int]]:
    return [[len(sample.input_ids) for sample in batch] for batch in batches]


def test_the_longest_that_fits_comes_next() -> None:
    batches = fill_batches(make_samples(3, 9, 1, 6, 4, 2), 10)
    assert lengths(batches) == [[9, 1], [6, 4], [3, 2]]


def test_a_sample_longer_than_a_step_is_a_batch_of_its_own() -> None:
    assert lengths(fill_batches(make_samples(5, 25, 5), 10)) == [[25], [5, 5]]


def test_no_sample_is_lost_doubled_or_over_the_budget() -> None:
    chance = random.Random(0)
    samples = make_samples(*(chance.randint(1, 400) for _ in range(1000)))
    batches = fill_batches(samples, 1000)
    assert sorted(sample.id for batch in batches for sample in batch) == sorted(
        sample.id for sample in samples
    )
    filled = [sum(batch) for batch in lengths(batches)]
    assert max(filled) <= 1000
    assert sum(filled) / len(filled) > 990


def test_the_order_of_the_data_makes_no_difference() -> None:
    samples = make_samples(3, 3, 3, 5, 5, 1)
    assert fill_batches(samples, 6) == fill_batches(samples[::-1], 6)


def test_nothing_gives_no_batches() -> None:
    assert fill_batches([], 10) == []


def test_shards_take_batches_in_their_order_up_to_their_size() -> None:
    batches = [make_samples(3, 1), make_samples(5), make_samples(4), make_samples(20, 2)]
    shards = fill_shards(batches, 10, lambda sample: len(sample.input_ids))
    assert [lengths(shard) for shard in shards] == [[[3, 1], [5]], [[4]], [[20, 2]]]
    assert fill_shards([], 10, lambda sample: 1) == []
