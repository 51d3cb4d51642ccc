"""Rotary position embedding, with the scalings that Llama-family and DeepSeek targets use.

The tables equal those of vLLM 0.16 (`model_executor/layers/rotary_embedding`) and transformers
4.57 (`modeling_rope_utils.py`); a test compares them.
"""

import math
from typing import Any

import torch
from torch import nn


class Rotary(nn.Module):
    """Turns the halves of each head by angles that grow with the position (Llama's layout)."""

    inv_freq_F: torch.Tensor

    def __init__(self, head_dim: int, theta: float, scaling: dict[str, Any] | None) -> None:
        super().__init__()
        inv_freq_F, self.magnitude = frequencies(head_dim, theta, scaling)
        self.register_buffer("inv_freq_F", inv_freq_F, persistent=False)

    def forward(self, position_T: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines [T, 1, head_dim] in fp32."""
        # In full precision whatever the model was cast to: bf16 knows no odd position above 256.
        angle_TF = position_T.to(torch.float32)[:, None] * self.inv_freq_F.to(torch.float32)
        angle_T1D = torch.cat((angle_TF, angle_TF), dim=-1)[:, None]
        return angle_T1D.cos() * self.magnitude, angle_T1D.sin() * self.magnitude


def rotate(x_TND: torch.Tensor, cos_T1D: torch.Tensor, sin_T1D: torch.Tensor) -> torch.Tensor:
    """Heads turned by the angles of their rows, in the dtype of `x_TND`."""
    half = x_TND.shape[-1] // 2
    turned_TND = torch.cat((-x_TND[..., half:], x_TND[..., :half]), dim=-1)
    return (x_TND * cos_T1D + turned_TND * sin_T1D).to(x_TND.dtype)


def frequencies(
    head_dim: int, theta: float, scaling: dict[str, Any] | None
) -> tuple[torch.Tensor, float]:
    """The angles per position [head_dim / 2], fp32, and the factor of cosines and sines."""
    exponent_F = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    inv_freq_F = 1.0 / theta**exponent_F
    kind = scaling["rope_type"] if scaling else None
    if scaling is None:
        return inv_freq_F, 1.0
    if kind == "linear":
        return inv_freq_F / scaling["factor"], 1.0
    if kind == "llama3":
        return _llama3(inv_freq_F, scaling), 1.0
    if kind == "yarn":
        return _yarn(inv_freq_F, head_dim, theta, scaling), 0.1 * math.log(scaling["factor"]) + 1.0
    raise ValueError(f"unknown rope_type {kind}")


def _llama3(inv_freq_F: torch.Tensor, scaling: dict[str, Any]) -> torch.Tensor:
    """Slows low frequencies, keeps high ones, and blends between (Llama 3.1)."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns_F = scaling["original_max_position_embeddings"] * inv_freq_F / (2 * math.pi)
    keep_F = ((turns_F - low) / (high - low)).clamp(0.0, 1.0)
    return inv_freq_F * (keep_F + (1.0 - keep_F) / scaling["factor"])


def _yarn(
    inv_freq_F: torch.Tensor, head_dim: int, theta: float, scaling: dict[str, Any]
) -> torch.Tensor:
    """Slows the frequencies that turn seldom within the original context (arXiv 2309.00071)."""
    original = scaling["original_max_position_embeddings"]

    def dimension(turns: float) -> float:
        return head_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(dimension(scaling.get("beta_fast", 32))), 0)
    high = min(math.ceil(dimension(scaling.get("beta_slow", 1))), head_dim - 1)
    ramp_F = (torch.arange(head_dim // 2, dtype=torch.float32) - low) / max(high - low, 0.001)
    keep_F = 1.0 - ramp_F.clamp(0.0, 1.0)
    return inv_freq_F * (keep_F + (1.0 - keep_F) / scaling["factor"])
