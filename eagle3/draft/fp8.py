"""Matrix products in fp8 for training on a GPU that has them (Hopper, Blackwell).

Both factors are scaled row by row to the range of e4m3 and multiplied with fp32 accumulation: the
product of a projection and the gradient of its input. The gradient of the weight stays in the
input's dtype, where rounding would add up over the steps of a training. The recipe is torchao's
`rowwise_with_gw_hp`.
"""

from typing import Any, cast

import torch

from eagle3.errors import InputError

_HOPPER = (9, 0)
_E4M3 = torch.float8_e4m3fn
_GREATEST = torch.finfo(_E4M3).max


def check_fp8(device: torch.device) -> None:
    """Raises InputError where `device` cannot multiply so."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < _HOPPER:
        raise InputError("--fp8 needs a GPU that multiplies in fp8: Hopper or newer")


def fp8_linear(input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """`torch.nn.functional.linear` for bf16 `input` [T, K] and `weight` [N, K]."""
    return cast(torch.Tensor, _Fp8Linear.apply(input, weight))


class _Fp8Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input_TK: torch.Tensor, weight_NK: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(input_TK, weight_NK)
        return _product(input_TK, weight_NK)

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        (gradient_TN,) = upstream
        input_TK, weight_NK = ctx.saved_tensors
        return _product(gradient_TN, weight_NK.T), gradient_TN.T @ input_TK


def _product(rows_TK: torch.Tensor, columns_NK: torch.Tensor) -> torch.Tensor:
    """rows @ columns.T [T, N], in the dtype of `rows_TK`."""
    rows_fp8_TK, rows_scale_T1 = _scaled(rows_TK)
    columns_fp8_NK, columns_scale_N1 = _scaled(columns_NK)
    return torch._scaled_mm(
        rows_fp8_TK,
        columns_fp8_NK.T,
        scale_a=rows_scale_T1,
        scale_b=columns_scale_N1.T,
        out_dtype=rows_TK.dtype,
        use_fast_accum=True,
    )


def _scaled(x_TK: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows in e4m3, contiguous, and the fp32 scale [T, 1] that brings them back."""
    greatest_T1 = x_TK.abs().amax(dim=1, keepdim=True).to(torch.float32)
    scale_T1 = greatest_T1.clamp(min=1e-12) / _GREATEST
    return (x_TK.to(torch.float32) / scale_T1).to(_E4M3).contiguous(), scale_T1
