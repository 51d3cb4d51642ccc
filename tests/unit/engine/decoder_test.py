"""Decoder layers are found in every family's place; where there are none, all places are named."""

from typing import Any

import pytest
import torch
from torch import nn

from eagle3.engine.decoder import find_decoder_layers, residual_stream


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Identity(), nn.Identity()])


class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = Stack()
        self.lm_head = nn.Identity()


class Multimodal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.language_model = Text()

    def get_language_model(self) -> nn.Module:
        return self.language_model


@pytest.mark.parametrize("model", [Text(), Multimodal()])
def test_layers_are_found(model: Any) -> None:
    text = getattr(model, "language_model", model)
    assert find_decoder_layers(model) == list(text.model.layers)


def test_a_model_without_layers_is_refused_with_what_was_looked_for() -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = nn.Identity()

    with pytest.raises(
        ValueError,
        match=r"Encoder: looked for get_language_model\(\).model.layers, model.layers; it has emb",
    ):
        find_decoder_layers(Encoder())


def test_a_number_of_layers_is_no_layers() -> None:
    class Counted(nn.Module):
        layers = 2

    model = Text()
    setattr(model, "model", Counted())  # noqa: B010
    with pytest.raises(ValueError, match="no decoder layers found in Text"):
        find_decoder_layers(model)


def test_what_a_layer_returns_is_a_pair() -> None:
    states = torch.zeros(1)
    assert residual_stream((states, None)) == (states, None)
    for output in (states, (states,), (states, states, states), None):
        with pytest.raises(ValueError, match="not hidden states and a residual"):
            residual_stream(output)
