"""A sample's id is a function of its content alone."""

import pytest

from eagle3.store.sample import Sample, dataset_digest


def test_the_id_is_stable() -> None:
    # Stores on disk carry these ids: a change here loses what is committed.
    assert Sample((1, 2, 3), (0, 1, 1)).id == "f4f72ff452b4f4d576dbf452da1f12c1"


@pytest.mark.parametrize(
    "other",
    [
        Sample((1, 2, 4), (0, 1, 1)),
        Sample((1, 2, 3), (1, 1, 1)),
        Sample((2, 1, 3), (0, 1, 1)),
        Sample((1, 2), (0, 1)),
        Sample((1, 2, 3 + 2**40), (0, 1, 1)),
    ],
)
def test_other_content_is_another_sample(other: Sample) -> None:
    assert other.id != Sample((1, 2, 3), (0, 1, 1)).id


@pytest.mark.parametrize(("ids", "mask"), [((), ()), ((1, 2), (1,))])
def test_a_sample_without_tokens_or_mask_cannot_be(
    ids: tuple[int, ...], mask: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        Sample(ids, mask)


def test_the_dataset_digest_knows_no_order() -> None:
    first, second = Sample((1,), (1,)), Sample((2,), (1,))
    assert dataset_digest((first, second)) == dataset_digest((second, first))
    assert dataset_digest((first,)) != dataset_digest((first, second))
