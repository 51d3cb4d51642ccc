"""States that no healthy target gives are refused, with the place named."""

import pytest
import torch

from eagle3.errors import EngineError
from eagle3.extraction.states import check_states


def healthy_states() -> torch.Tensor:
    """bf16 [T, L, H] = [5, 2, 3]."""
    return torch.arange(1, 31).reshape(5, 2, 3).to(torch.bfloat16)


def test_healthy_states_pass() -> None:
    hidden_states_TLH = healthy_states()
    hidden_states_TLH[0, 0, :2] = 0  # single zeros are nothing special
    check_states(hidden_states_TLH, (4, 9), "data:7")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_value_that_is_no_number_is_refused(value: float) -> None:
    hidden_states_TLH = healthy_states()
    hidden_states_TLH[3, 1, 2] = value
    with pytest.raises(
        EngineError, match=r"^data:7: .* NaN or Inf at token 3, capture point 9 \(1 such"
    ):
        check_states(hidden_states_TLH, (4, 9), "data:7")


def test_a_row_of_zeros_is_refused() -> None:
    hidden_states_TLH = healthy_states()
    hidden_states_TLH[2:, 0] = 0
    with pytest.raises(
        EngineError, match=r"^data:7: .* all zero at token 2, capture point 4 \(3 such"
    ):
        check_states(hidden_states_TLH, (4, 9), "data:7")
