"""States that no healthy target gives are found, with kind and place."""

import time

import pytest
import torch

from eagle3.extraction.states import Fault, find_faults

POINTS = (4, 9)
TOKENS = [[11, 12, 13, 14, 15], [16, 11, 17]]


def healthy_states() -> list[torch.Tensor]:
    """bf16 [T, L, H] = [5, 2, 8] and [3, 2, 8]; the second row of token 11 equals its first."""
    rows = torch.arange(1, 8 * 16 + 1).reshape(8, 2, 8).to(torch.bfloat16)
    rows[6] = rows[0]
    return [rows[:5].clone(), rows[5:].clone()]


def find(states: list[torch.Tensor]) -> list[Fault | None]:
    return find_faults(TOKENS, states, POINTS)


def test_healthy_states_pass() -> None:
    states = healthy_states()
    states[0][0, 0, :2] = 0  # single zeros are nothing special
    assert find(states) == [None, None]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_one_value_that_is_no_number_is_found(value: float) -> None:
    states = healthy_states()
    states[0][3, 1, 2] = value
    assert find(states) == [Fault("NaN or Inf", 3, 9, 1), None]


def test_infinities_that_cancel_are_found() -> None:
    states = healthy_states()
    states[0][3, 1, 2], states[0][3, 1, 5] = float("inf"), -float("inf")
    assert find(states) == [Fault("NaN or Inf", 3, 9, 1), None]


def test_large_values_whose_sum_is_no_number_are_fine() -> None:
    states = healthy_states()
    states[0][3, 1] += 3e38
    states[0][3, 1, 0] = 1
    assert find(states) == [None, None]


def test_a_row_that_only_begins_with_one_value_is_fine() -> None:
    states = healthy_states()
    states[0][2, 1, :7] = 0
    assert find(states) == [None, None]


def test_a_row_of_zeros_is_found() -> None:
    states = healthy_states()
    states[1][1:, 0] = 0
    assert find(states) == [None, Fault("all zero", 1, 4, 2)]


def test_a_row_of_one_value_is_found() -> None:
    states = healthy_states()
    states[0][2, 1] = -3
    assert find(states) == [Fault("constant", 2, 9, 1), None]


def test_equal_rows_of_different_tokens_are_found_in_one_sample() -> None:
    states = healthy_states()
    states[0][4, 1] = states[0][1, 1]
    assert find(states) == [Fault("duplicated", 1, 9, 2), None]


def test_equal_rows_of_different_tokens_are_found_across_samples() -> None:
    """As where the rows of one prompt were counted to another."""
    states = healthy_states()
    states[1][2] = states[0][3]
    assert find(states) == [Fault("duplicated", 3, 4, 2), Fault("duplicated", 2, 4, 2)]


def test_rows_that_only_begin_alike_are_fine() -> None:
    states = healthy_states()
    states[0][4, 1, :7] = states[0][1, 1, :7]
    assert find(states) == [None, None]


def test_equal_rows_of_one_token_are_fine_beside_another_that_begins_alike() -> None:
    states = healthy_states()
    states[0][1, :, :4] = states[0][0, :, :4]
    assert torch.equal(states[0][0], states[1][1])
    assert find(states) == [None, None]


@pytest.mark.parametrize("value", [float("nan"), 0.0, 3.0])
def test_rows_that_are_all_alike_take_no_time_to_look_at(value: float) -> None:
    """As of a broken target: compared in pairs, as many rows took a minute."""
    rows = 2000
    states = torch.full((rows, 2, 8), value, dtype=torch.bfloat16)
    began = time.process_time()
    [fault] = find_faults([range(rows)], [states], POINTS)
    assert fault is not None
    assert fault.rows == 2 * rows
    assert time.process_time() - began < 5


def test_equal_rows_at_different_points_are_fine() -> None:
    states = healthy_states()
    states[0][1, 0] = states[0][2, 1]
    assert find(states) == [None, None]


def test_a_fault_reads_as_a_sentence_goes_on() -> None:
    assert str(Fault("constant", 3, 61, 2)) == (
        "constant at token 3, capture point 61 (2 such rows)"
    )
