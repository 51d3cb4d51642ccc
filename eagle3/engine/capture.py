"""Takes the residual stream at the capture points while the target runs a step.

Hooks leave the model's own forward pass as it is: a copy of vLLM's loop over the layers would miss
what a model adds of its own (DeepSeek's llama_4_scaling, scales of embeddings).
"""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from eagle3.engine.decoder import residual_stream


class Capture:
    """Hooks on the decoder `layers`, for the states [L, H] of a row at `capture_points`.

    They do nothing but between `begin` and `end`, so that warm-up runs cost nothing.
    """

    def __init__(
        self, layers: Sequence[nn.Module], capture_points: Sequence[int], hidden_size: int
    ) -> None:
        self._points = len(capture_points)
        self._hidden_size = hidden_size
        self._tokens = 0
        self._share: range | None = None
        self._states_NLH: torch.Tensor | None = None
        self._seen: set[int] = set()
        for place, point in enumerate(capture_points):
            if point == 0:
                layers[0].register_forward_pre_hook(self._input_hook(place), with_kwargs=True)
            else:
                layers[point - 1].register_forward_hook(self._output_hook(place))

    def begin(self, tokens: int, share: range) -> None:
        """From now on, takes the rows `share` of a step of `tokens` rows."""
        self._tokens, self._share = tokens, share
        self._states_NLH, self._seen = None, set()

    def end(self) -> torch.Tensor:
        """The states [N, L, H] of the share, bf16 on the target's device.

        On a GPU they may not be computed yet; the current stream orders what uses them. Raises
        RuntimeError where a capture point was not passed.
        """
        states_NLH, self._states_NLH, self._share = self._states_NLH, None, None
        if states_NLH is None or len(self._seen) != self._points:
            raise RuntimeError(
                f"the step passed {len(self._seen)} of {self._points} capture points"
            )
        return states_NLH

    def cancel(self) -> None:
        """Takes no more of a step that failed."""
        self._states_NLH = self._share = None

    def _output_hook(self, place: int) -> Any:
        def hook(_layer: nn.Module, _args: Any, output: Any) -> None:
            if self._share is not None:
                self._take(place, *residual_stream(output))

        return hook

    def _input_hook(self, place: int) -> Any:
        def hook(layer: nn.Module, args: Any, keywords: Any) -> None:
            if self._share is not None:
                # By name: gpt-oss calls its layers with the hidden states first.
                bound = inspect.signature(layer.forward).bind(*args, **keywords)
                self._take(place, bound.arguments["hidden_states"], None)

        return hook

    def _take(self, place: int, states_TH: torch.Tensor, residual_TH: torch.Tensor | None) -> None:
        assert self._share is not None
        if states_TH.shape != (self._tokens, self._hidden_size):
            raise RuntimeError(
                f"a layer gave states {list(states_TH.shape)} in a step of {self._tokens} tokens "
                f"with hidden size {self._hidden_size}"
            )
        if self._states_NLH is None:
            shape = (len(self._share), self._points, self._hidden_size)
            self._states_NLH = states_TH.new_empty(shape, dtype=torch.bfloat16)
        rows = slice(self._share.start, self._share.stop)
        taken_NH = self._states_NLH[:, place]
        # Taken now: the next layer writes into its input.
        if residual_TH is None:
            taken_NH.copy_(states_TH[rows])
        else:
            torch.add(states_TH[rows], residual_TH[rows], out=taken_NH)
        self._seen.add(place)
