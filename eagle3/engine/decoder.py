"""Where each family of targets keeps its decoder layers, and what a layer returns.

This is all that extraction knows of vLLM's models; tests/contract holds each line of it.
"""

from typing import Any

import torch
from torch import nn

# Ways from the model that vLLM's runner holds to its decoder layers; the first that exists counts.
# () stands for a call. All in vllm/model_executor/models (0.16.0).
_WAYS = (
    # multimodal wrappers: kimi_k25.py
    ("get_language_model", "()", "model", "layers"),
    # llama.py, qwen2.py, qwen3.py, qwen3_moe.py, gpt_oss.py, deepseek_v2.py, glm4.py, minicpm.py
    ("model", "layers"),
)


def find_decoder_layers(model: nn.Module) -> list[nn.Module]:
    """The decoder layers of a model of vLLM.

    Raises ValueError that lists what was looked for where there are none.
    """
    for way in _WAYS:
        layers = _follow(model, way)
        if isinstance(layers, nn.ModuleList) and len(layers):
            return list(layers)
    looked_for = ", ".join(".".join(way).replace(".()", "()") for way in _WAYS)
    raise ValueError(
        f"no decoder layers found in {type(model).__name__}: looked for {looked_for}; it has "
        f"{', '.join(name for name, _ in model.named_children()) or 'nothing'}"
    )


def _follow(model: Any, way: tuple[str, ...]) -> Any:
    for name in way:
        model = model() if name == "()" else getattr(model, name, None)
        if model is None:
            return None
    return model


def residual_stream(output: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What a decoder layer returned: two [T, H] whose sum is the residual stream, or it and None.

    A layer returns its last sub-block's output and the stream before it, which the next norm
    would add. MiniCPM's scales what it adds, so it adds it itself. Raises ValueError for a layer
    that returns anything else.
    """
    if isinstance(output, tuple) and len(output) == 2 and isinstance(output[0], torch.Tensor):
        return output
    raise ValueError(
        f"a decoder layer returned {type(output).__name__}, not hidden states and a residual"
    )
