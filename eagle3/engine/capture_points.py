"""Capture points, and the two ways others count them.

Capture point k is the residual stream after k decoder layers, before the final norm. vLLM's
auxiliary state k, taken before layer k, is the same; speculators' layer i is point i + 1.
"""

from collections.abc import Sequence
from typing import Literal

from eagle3.errors import InputError

LayerConvention = Literal["after-layer", "vllm"]


def default_capture_points(num_layers: int) -> tuple[int, ...]:
    """The three points that vLLM serves EAGLE-3 drafts by default, and the last one.

    Source: vllm/model_executor/models/llama.py (0.16.0),
    get_eagle3_aux_hidden_state_layers. Raises InputError for a target too shallow to have them.
    """
    points = (2, num_layers // 2, num_layers - 3, num_layers)
    if len(set(points)) < len(points) or min(points) < 0:
        raise InputError(
            f"a target of {num_layers} layers has no four default capture points: name its "
            "layers with --layers"
        )
    return points


def capture_points_from_layers(
    layers: Sequence[int], convention: LayerConvention, num_layers: int
) -> tuple[int, ...]:
    """Converts layer numbers to capture points, in the order given.

    Raises InputError for no layers, a layer out of range, or one named twice.
    """
    offset = 1 if convention == "after-layer" else 0
    if not layers:
        raise InputError("no layers named")
    for layer in layers:
        if not 0 <= layer + offset <= num_layers:
            raise InputError(
                f"layer {layer} is out of range: this target has {-offset} to "
                f"{num_layers - offset} ({convention})"
            )
        if list(layers).count(layer) > 1:
            raise InputError(f"layer {layer} is named twice")
    return tuple(layer + offset for layer in layers)


def after_layer_ids(capture_points: Sequence[int]) -> list[int]:
    """speculators' layer indices: the state after layer i; -1 is the embedding's output."""
    return [point - 1 for point in capture_points]


def vllm_ids(capture_points: Sequence[int]) -> list[int]:
    """vLLM's auxiliary layer ids: the state before layer k."""
    return list(capture_points)
