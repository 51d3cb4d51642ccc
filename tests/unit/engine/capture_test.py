"""The hooks on layers of every form that vLLM's models have."""

from typing import Any

import pytest
import torch
from torch import nn

from eagle3.engine.capture import Capture

_INPUT_TH = torch.full((3, 4), 2.0, dtype=torch.bfloat16)
_POSITIONS_T = torch.arange(3)


class _AddsLater(nn.Module):
    """Llama's form: what the layer adds, and the stream to add it to."""

    def forward(self, positions: Any, hidden_states: Any, residual: Any) -> Any:
        return hidden_states * 10, hidden_states


class _AddsItself(nn.Module):
    """MiniCPM's form: the whole stream, and nothing to add."""

    def forward(self, positions: Any, hidden_states: Any, residual: Any) -> Any:
        return hidden_states * 11, None


class _StreamFirst(nn.Module):
    """gpt-oss's form: the hidden states before the positions."""

    def forward(self, hidden_states: Any, positions: Any, residual: Any) -> Any:
        return hidden_states * 10, hidden_states


def _captured(layer: nn.Module, *arguments: Any, **keywords: Any) -> torch.Tensor:
    """[N, L, H] at the points 1 and 0."""
    capture = Capture([layer], (1, 0), 4)
    capture.begin(3, range(3))
    output, _ = layer(*arguments, **keywords)
    # The next layer writes into its input.
    output.zero_()
    return capture.end()


@pytest.mark.parametrize(
    ("layer", "arguments"),
    [
        pytest.param(_AddsLater(), (_POSITIONS_T, _INPUT_TH, None), id="llama"),
        pytest.param(_AddsItself(), (_POSITIONS_T, _INPUT_TH, None), id="minicpm"),
        pytest.param(_StreamFirst(), (_INPUT_TH, _POSITIONS_T, None), id="gpt-oss"),
    ],
)
def test_the_stream_after_and_before_a_layer(layer: nn.Module, arguments: tuple[Any, ...]) -> None:
    states_NLH = _captured(layer, *arguments)
    assert torch.equal(states_NLH, torch.stack([_INPUT_TH * 11, _INPUT_TH], dim=1))


def test_arguments_given_by_keyword() -> None:
    states_NLH = _captured(
        _AddsLater(), residual=None, hidden_states=_INPUT_TH, positions=_POSITIONS_T
    )
    assert torch.equal(states_NLH[:, 1], _INPUT_TH)


def test_only_the_share_is_taken() -> None:
    layer = _AddsLater()
    capture = Capture([layer], (1,), 4)
    rows_TH = torch.arange(12.0, dtype=torch.bfloat16).view(3, 4)
    for share in (range(1), range(1, 3), range(2, 2)):
        capture.begin(3, share)
        layer(_POSITIONS_T, rows_TH, None)
        expected = rows_TH[share.start : share.stop, None] * 11
        assert torch.equal(capture.end(), expected)


def test_nothing_is_taken_outside_a_step() -> None:
    layer = _AddsLater()
    capture = Capture([layer], (1,), 4)
    layer(_POSITIONS_T, _INPUT_TH[:1], None)
    capture.begin(3, range(3))
    capture.cancel()
    layer(_POSITIONS_T, _INPUT_TH[:1], None)
    with pytest.raises(RuntimeError, match="the step passed 0 of 1 capture points"):
        capture.end()


def test_a_point_that_was_not_passed_is_told() -> None:
    layers = [_AddsLater(), _AddsLater()]
    capture = Capture(layers, (1, 2), 4)
    capture.begin(3, range(3))
    layers[0](_POSITIONS_T, _INPUT_TH, None)
    with pytest.raises(RuntimeError, match="the step passed 1 of 2 capture points"):
        capture.end()


def test_rows_of_nobody_are_refused() -> None:
    layer = _AddsLater()
    capture = Capture([layer], (1,), 4)
    capture.begin(2, range(2))
    with pytest.raises(RuntimeError, match=r"gave states \[3, 4\] in a step of 2 tokens"):
        layer(_POSITIONS_T, _INPUT_TH, None)
