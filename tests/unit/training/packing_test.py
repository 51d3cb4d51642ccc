"""Packing and order: every row once, nothing by chance."""

import random

from eagle3.training.order import epoch_order
from eagle3.training.packing import Document, documents_of, pack


def lengths_of(count: int, longest: int) -> list[int]:
    chance = random.Random(0)
    return [chance.randint(1, longest) for _ in range(count)]


def test_every_row_is_packed_once_and_no_batch_overflows() -> None:
    lengths = lengths_of(500, 300)
    rows = []
    for batch in pack(range(500), lengths, 128):
        assert sum(document.length for document in batch) <= 128
        for document in batch:
            rows += [(document.sample, document.start + row) for row in range(document.length)]
    expected = [(sample, row) for sample, length in enumerate(lengths) for row in range(length)]
    assert sorted(rows) == expected


def test_little_is_padding() -> None:
    lengths = lengths_of(2000, 100)
    batches = list(pack(range(2000), lengths, 512))
    assert sum(lengths) / (len(batches) * 512) > 0.97


def test_a_long_sample_is_cut_at_the_budget() -> None:
    assert list(documents_of(7, 10, 4)) == [
        Document(7, 0, 4),
        Document(7, 4, 4),
        Document(7, 8, 2),
    ]
    assert list(documents_of(7, 4, 4)) == [Document(7, 0, 4)]


def test_an_order_is_a_permutation_by_seed_and_epoch_alone() -> None:
    order = list(epoch_order(1000, 3, 5))
    assert sorted(order) == list(range(1000))
    assert order == list(epoch_order(1000, 3, 5))
    others = [list(epoch_order(1000, *other)) for other in ((3, 6), (4, 5), (5, 3))]
    assert order not in others


def test_the_order_is_the_one_of_earlier_versions() -> None:
    # A run that goes on in a later version must see the same samples.
    assert list(epoch_order(8, 0, 0)) == [2, 4, 3, 6, 5, 0, 1, 7]
    assert list(epoch_order(8, 0, 1)) == [1, 3, 7, 6, 0, 4, 2, 5]
