"""How rows of hidden states lie in a shard: as they are, or as 8-bit floats with a scale."""

import torch

from eagle3.store.row_format import BFLOAT16, SCALE_BYTES

_LARGEST_FLOAT8 = torch.finfo(torch.float8_e4m3fn).max


def encode(states_NLH: torch.Tensor, dtype: str) -> torch.Tensor:
    """bf16 [N, L, H] as it lies in a shard: [N, L, bytes / 2], typed as bf16 whatever it holds.

    FLOAT8: H values in e4m3, then a float32 by which all of them are multiplied, so that the
    largest of the row is the largest that e4m3 has. A row with NaN or Inf becomes one of NaN. H
    must be even.
    """
    if dtype == BFLOAT16:
        return states_NLH
    values = states_NLH.float()
    scale = values.abs().amax(dim=-1, keepdim=True) / _LARGEST_FLOAT8
    values = (values / scale.where(scale != 0, 1)).to(torch.float8_e4m3fn)
    encoded = torch.cat([values.view(torch.uint8), scale.view(torch.uint8)], dim=-1)
    return encoded.view(torch.bfloat16)


def decode(rows: torch.Tensor, dtype: str) -> torch.Tensor:
    """bf16 [N, L, H] of what `encode` made; for BFLOAT16 the very same tensor."""
    if dtype == BFLOAT16:
        return rows
    encoded = rows.view(torch.uint8)
    values = encoded[..., :-SCALE_BYTES].view(torch.float8_e4m3fn)
    scale = encoded[..., -SCALE_BYTES:].contiguous().view(torch.float32)
    states_NLH = torch.empty(values.shape, dtype=torch.bfloat16, device=rows.device)
    for point in range(values.shape[1]):
        # One at a time: in float32 all of them take four times the memory that they had.
        states_NLH[:, point] = values[:, point].to(torch.float32).mul_(scale[:, point])
    return states_NLH
