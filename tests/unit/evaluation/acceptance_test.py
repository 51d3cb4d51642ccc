"""The figures of acceptance, against ones made by hand."""

import math

import pytest

from eagle3.evaluation.acceptance import Acceptance

# Ten steps of two drafted tokens: five accepted none, two one, three both.
STEPS = Acceptance((5, 2, 3))


def test_length_holds_the_bonus_token() -> None:
    assert STEPS.length == pytest.approx(1 + (2 * 1 + 3 * 2) / 10)
    assert Acceptance((4, 0)).length == 1.0
    assert Acceptance((0, 0, 4)).length == 3.0


def test_rates_by_position() -> None:
    assert STEPS.joint == (0.5, 0.3)
    assert STEPS.conditional == (0.5, 0.6)
    assert 1 + sum(STEPS.joint) == pytest.approx(STEPS.length)


def test_what_vllm_counts_is_the_same() -> None:
    assert Acceptance.of_positions(10, [5, 3]) == STEPS


def test_steps_add_up() -> None:
    steps = Acceptance.none(2)
    for accepted in (0, 0, 0, 0, 0, 1, 1, 2, 2, 2):
        steps = steps.with_step(accepted)
    assert steps == STEPS
    steps += STEPS
    assert steps == Acceptance((10, 4, 6))


def test_the_error_is_that_of_a_mean() -> None:
    accepted = [0] * 5 + [1] * 2 + [2] * 3
    mean = sum(accepted) / 10
    variance = sum((a - mean) ** 2 for a in accepted) / 9
    assert STEPS.length_error == pytest.approx(math.sqrt(variance / 10))


def test_a_difference_must_be_clear() -> None:
    few, many = Acceptance((6, 4)), Acceptance((600, 400))
    assert not few.clearly_above(Acceptance((8, 2)))
    assert many.clearly_above(Acceptance((800, 200)))
    assert not Acceptance((800, 200)).clearly_above(many)
    assert not Acceptance((0, 1)).clearly_above(Acceptance((1, 0)))
