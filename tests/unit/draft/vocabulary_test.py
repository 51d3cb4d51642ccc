"""Which tokens a draft knows, and the way between its ids and the target's."""

import pytest
import torch

from eagle3.draft.vocabulary import VocabularyMap, choose_vocabulary, coverage
from eagle3.errors import InputError


def test_the_most_frequent_tokens_and_of_equals_the_lower_ids() -> None:
    vocabulary = choose_vocabulary(torch.tensor([5, 0, 7, 5, 5, 9]), 4)
    assert vocabulary.target_ids.tolist() == [0, 2, 3, 5]
    assert vocabulary.t2d_V.tolist() == [True, False, True, True, False, True]
    assert vocabulary.d2t_D.tolist() == [0, 1, 1, 2]


def test_there_and_back() -> None:
    vocabulary = VocabularyMap.of(torch.tensor([9, 3, 4]), 12)
    assert vocabulary.t2d_V[vocabulary.target_ids].all()
    assert int(vocabulary.t2d_V.sum()) == 3
    vocabulary.check()


def test_halves_of_different_maps() -> None:
    one, other = (VocabularyMap.of(torch.tensor(ids), 6) for ids in ([0, 2], [0, 3]))
    with pytest.raises(InputError, match="differ"):
        VocabularyMap(one.t2d_V, other.d2t_D).check()


def test_coverage_is_the_share_of_supervised_tokens() -> None:
    frequencies_V = torch.tensor([6, 1, 3, 0])
    assert coverage(frequencies_V, choose_vocabulary(frequencies_V, 2)) == 0.9
    assert coverage(torch.zeros(4, dtype=torch.int64), choose_vocabulary(frequencies_V, 2)) == 0.0


@pytest.mark.parametrize("size", [0, 5])
def test_a_size_that_the_target_cannot_have(size: int) -> None:
    with pytest.raises(InputError, match="does not fit"):
        choose_vocabulary(torch.ones(4), size)
