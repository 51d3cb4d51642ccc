"""What the reference run asks of workers and finds out about their states."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from eagle3.engine.engine import Engine
from eagle3.engine.rows import Report, Rows
from eagle3.errors import EngineError
from tests.gpu.reference_checks import counted_shares, is_finite, nearness_alone
from tests.gpu.worker_probe import enliven, restore

SHAPE = (7, 3, 129)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", [0, 1300, 7 * 3 * 129 - 1])
def test_one_value_that_is_no_number_is_found(value: float, place: int) -> None:
    states_TLH = torch.randn(SHAPE).bfloat16()
    assert is_finite(states_TLH)
    states_TLH.view(-1)[place] = value
    assert not is_finite(states_TLH)


class Workers:
    """Two ranks, of which each reports the rows that a step names for it."""

    count = 2

    def call(self, method: str, *counts: int, timeout_s: float) -> list[Report]:
        return [Report((Rows("a", 0, count, "x", 0),)) for count in counts]


def test_rows_are_counted_by_rank_and_only_inside() -> None:
    workers = Workers()
    engine = cast(Engine, SimpleNamespace(_workers=workers))
    with counted_shares(engine) as shares:
        workers.call("run_captured_step", 3, 4, timeout_s=1)
        workers.call("finish_capture", 1, 0, timeout_s=1)
    workers.call("run_captured_step", 9, 9, timeout_s=1)
    assert (shares.rows, shares.steps) == ([4, 4], 1)
    assert "8 in 1 steps, each once; 4 to 4 by each of 2 writers" in shares.check(8)
    with pytest.raises(EngineError, match="8 rows were written, and 9 planned"):
        shares.check(9)


def test_ranks_that_write_unequal_shares_are_an_error() -> None:
    workers = Workers()
    with counted_shares(cast(Engine, SimpleNamespace(_workers=workers))) as shares:
        workers.call("run_captured_step", 6, 2, timeout_s=1)
    with pytest.raises(EngineError, match=r"wrote \[6, 2\] rows in 1 steps"):
        shares.check(8)


def test_prompts_alone_are_compared_with_themselves_among_others() -> None:
    def states(position: int, prompt_T: list[int]) -> torch.Tensor:
        """As of an engine that takes the second prompt's rows for others."""
        rows = [[[1.0, token], [token, 1.0]] for token in prompt_T]
        return torch.tensor(rows) * (-1 if position == 1 else 1)

    engine = SimpleNamespace(
        extract=lambda prompts: [states(*numbered) for numbered in enumerate(prompts)]
    )
    near = nearness_alone(cast(Engine, engine), [[1, 2], [3], [4]], alone=2)
    assert near.rows == 2 * 2 + 2
    assert near.median == pytest.approx(1)
    assert near.worst == pytest.approx(-1)


def test_weights_that_were_enlivened_come_back() -> None:
    model: Any = torch.nn.Module()
    for name in ("input_layernorm", "gate_proj", "e_score_correction_bias"):
        model.register_parameter(name, torch.nn.Parameter(torch.full((3,), 1e-3)))
    worker = SimpleNamespace(model_runner=SimpleNamespace(get_model=lambda: model))
    before = {name: value.clone() for name, value in model.named_parameters()}
    enliven(worker)
    assert torch.equal(model.input_layernorm, torch.ones(3))
    assert torch.equal(model.gate_proj, before["gate_proj"])
    torch.testing.assert_close(model.e_score_correction_bias.data, torch.full((3,), 10.0))
    restore(worker)
    for name, value in model.named_parameters():
        assert torch.equal(value, before[name])
