"""What a step costs, and what the hardware could do."""

import time

import torch

from eagle3.draft.config import FUSED_POINTS, DraftConfig

# Dense bf16 in FLOP/s, from the makers' data sheets, by a part of the device's name.
_PEAKS = {
    "B200": 2.25e15,
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "RTX PRO 6000": 504e12,
}

# Share of a large matrix product's rate that steps reach on an H200 (docs/training-speed.md).
_EFFICIENCY = 0.7


def compute_dtype(device: torch.device) -> torch.dtype:
    """bf16 on a GPU; a CPU multiplies fp32 faster."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def peak_flops(device: torch.device) -> float | None:
    """The most FLOP/s that the device can do in bf16; None where it is not known."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in _PEAKS.items() if part in name), None)


def matmul_flops(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of a large matrix product here and now."""
    size = 8192 if device.type == "cuda" else 1024
    matrix = torch.randn(size, size, device=device, dtype=dtype)
    seconds = 0.0
    # The first product warms up.
    for _ in range(2):
        began = time.monotonic()
        (matrix @ matrix)[0, 0].item()
        seconds = time.monotonic() - began
    return 2 * size**3 / seconds


def expected_rate(
    config: DraftConfig,
    unroll_steps: int,
    device: torch.device,
    dtype: torch.dtype,
    *,
    train_head: bool,
) -> float:
    """A guess at the tokens/s of one device, from a large matrix product timed here and now."""
    flops = flops_per_token(config, unroll_steps, train_head=train_head)
    return _EFFICIENCY * matmul_flops(device, dtype) / flops


def flops_per_token(config: DraftConfig, unroll_steps: int, *, train_head: bool) -> float:
    """FLOP of a training step a token, without attention's scores.

    A weight costs 2 forwards, 2 backwards to its input, and 2 to itself where it is trained. The
    teacher's head is computed once and has no backward pass.
    """
    hidden, heads = config.hidden_size, config.num_attention_heads + config.num_key_value_heads
    attention = 2 * hidden * config.head_dim * (heads + config.num_key_value_heads)
    attention += config.num_attention_heads * config.head_dim * hidden
    mlp = 3 * hidden * config.intermediate_size
    head = hidden * config.draft_vocab_size
    # The states themselves need no gradient.
    fuse = 4 * FUSED_POINTS * hidden * hidden
    return (
        fuse + unroll_steps * (6 * (attention + mlp) + (6 if train_head else 4) * head) + 2 * head
    )
