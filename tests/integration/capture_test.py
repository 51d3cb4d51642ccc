"""The hooks alone, on layers of every form that vLLM's models have; no engine is started."""

from typing import Any

import pytest
import torch
from speculators.data_generation.custom_worker import (
    EMBEDDING_OUTPUT,
    HiddenStatesWorkerExtension,
)
from torch import nn

_INPUT_TH = torch.full((3, 4), 2.0)
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


def _captured(layer: nn.Module, *arguments: Any, **keywords: Any) -> dict[int, torch.Tensor]:
    worker = HiddenStatesWorkerExtension()
    worker._captured_states = {}
    layer.register_forward_pre_hook(worker._capture_embedding, with_kwargs=True)
    layer.register_forward_hook(lambda _layer, _args, output: worker._capture_layer(0, output))
    output, _ = layer(*arguments, **keywords)
    # The next layer writes into its input.
    output.zero_()
    return worker._captured_states


@pytest.mark.parametrize(
    ("layer", "arguments"),
    [
        pytest.param(_AddsLater(), (_POSITIONS_T, _INPUT_TH, None), id="llama"),
        pytest.param(_AddsItself(), (_POSITIONS_T, _INPUT_TH, None), id="minicpm"),
        pytest.param(_StreamFirst(), (_INPUT_TH, _POSITIONS_T, None), id="gpt-oss"),
    ],
)
def test_the_stream_before_and_after_a_layer(layer: nn.Module, arguments: tuple[Any, ...]) -> None:
    states = _captured(layer, *arguments)
    assert torch.equal(states[EMBEDDING_OUTPUT], _INPUT_TH)
    assert torch.equal(states[0], _INPUT_TH * 11)


def test_arguments_given_by_keyword() -> None:
    states = _captured(_AddsLater(), residual=None, hidden_states=_INPUT_TH, positions=_POSITIONS_T)
    assert torch.equal(states[EMBEDDING_OUTPUT], _INPUT_TH)
