"""Attention of the unrolled steps: both kernels agree, and a row sees what a chain would."""

import pytest
import torch

from eagle3.training.attention import (
    UnrolledAttention,
    dense_attention,
    flex_document_attention,
    merge_own_keys,
)

N, G, SIZE = 4, 2, 8
DOCUMENTS = torch.tensor([0] * 100 + [1] * 1 + [2] * 27 + [-1] * 3, dtype=torch.int32)
T = len(DOCUMENTS)


def heads(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(T, count, SIZE, generator=generator, requires_grad=True) for count in (N, G, G)
    ]


# The unfused kernel is what the compiled one is compared with in tests/gpu.
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_equals_dense_with_gradients() -> None:
    results = []
    for attention in (dense_attention, flex_document_attention):
        qkv = heads(0)
        out_TND, lse_TN = attention(DOCUMENTS)(*qkv)
        loss = (out_TND * torch.arange(SIZE)).sum() + lse_TN.square().sum()
        results.append((out_TND, lse_TN, *torch.autograd.grad(loss, qkv)))
    for dense, flex in zip(*results, strict=True):
        torch.testing.assert_close(flex, dense, rtol=1e-4, atol=1e-4)


def test_merging_equals_one_softmax_over_all_keys() -> None:
    q_TND, k_TGD, v_TGD = heads(0)
    _, *own = heads(1)
    attend = UnrolledAttention(dense_attention(DOCUMENTS))
    attend(q_TND, k_TGD, v_TGD)
    out_TND = attend(q_TND, *own)
    row, head = 110, 3
    seen = slice(101, row + 1)
    keys = torch.cat((k_TGD[seen, head // 2], own[0][row : row + 1, head // 2]))
    values = torch.cat((v_TGD[seen, head // 2], own[1][row : row + 1, head // 2]))
    weights = torch.softmax(keys @ q_TND[row, head] / SIZE**0.5, 0)
    torch.testing.assert_close(out_TND[row, head], weights @ values)


def test_a_key_that_is_far_better_takes_all() -> None:
    q_TND, k_TGD, v_TGD = heads(0)
    nothing_TN = torch.full((T, N), -1e4)
    out_TND = merge_own_keys(torch.zeros_like(q_TND), nothing_TN, q_TND, [k_TGD], [v_TGD])
    torch.testing.assert_close(out_TND, v_TGD.repeat_interleave(N // G, dim=1))
