"""Attention of the unrolled steps: the documents' first keys, and each row's own later ones.

At step i a row attends to the step-0 keys of the rows up to itself in its document, and to the
keys of steps 1 to i of its own row only: what a drafting chain that starts at the row sees. The
second part is a handful of products a row, so it is not put into the keys of a growing cache
with a mask of its own each step. It is merged with the first by log-sum-exp.
"""

import math
from collections.abc import Callable
from typing import cast

import torch
from torch.nn.attention.flex_attention import (
    AuxOutput,
    AuxRequest,
    create_block_mask,
    flex_attention,
)

# Queries [T, N, D], keys and values [T, G, D] -> outputs [T, N, D] and, in fp32, the
# log-sum-exp of each query's scores [T, N].
DocumentAttention = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]
]


class UnrolledAttention:
    """What the draft's layer attends to, step after step; made anew for each batch."""

    def __init__(self, documents: DocumentAttention) -> None:
        self._documents = documents
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []

    def __call__(
        self, q_TND: torch.Tensor, k_TGD: torch.Tensor, v_TGD: torch.Tensor
    ) -> torch.Tensor:
        self._keys.append(k_TGD)
        self._values.append(v_TGD)
        out_TND, lse_TN = self._documents(q_TND, self._keys[0], self._values[0])
        if len(self._keys) == 1:
            return out_TND
        return merge_own_keys(out_TND, lse_TN, q_TND, self._keys[1:], self._values[1:])


def merge_own_keys(
    out_TND: torch.Tensor,
    lse_TN: torch.Tensor,
    q_TND: torch.Tensor,
    own_keys: list[torch.Tensor],
    own_values: list[torch.Tensor],
) -> torch.Tensor:
    """Extends attention (`out_TND`, `lse_TN`) by keys and values [T, G, D] of the row itself."""
    rows, heads, size = q_TND.shape
    groups = own_keys[0].shape[1]
    q_TGMD = q_TND.view(rows, groups, heads // groups, size).to(torch.float32)
    lse_TGM = lse_TN.view(rows, groups, -1)
    scores = [(q_TGMD * k_TGD[:, :, None]).sum(-1) / math.sqrt(size) for k_TGD in own_keys]
    weights = torch.softmax(torch.stack([lse_TGM, *scores]), dim=0)[..., None]
    merged_TGMD = weights[0] * out_TND.view(q_TGMD.shape)
    for weight_TGM1, v_TGD in zip(weights[1:], own_values, strict=True):
        merged_TGMD = merged_TGMD + weight_TGM1 * v_TGD[:, :, None]
    return merged_TGMD.view(rows, heads, size).to(out_TND.dtype)


def dense_attention(document_T: torch.Tensor) -> DocumentAttention:
    """Scores of all rows with all rows, [N, T, T]: for any device, and for small T."""
    later_TT = torch.ones(len(document_T), len(document_T), dtype=torch.bool).triu(1)
    hidden_TT = later_TT.to(document_T.device) | (document_T[:, None] != document_T[None])

    def attend(
        q_TND: torch.Tensor, k_TGD: torch.Tensor, v_TGD: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        _, heads, size = q_TND.shape
        shared = heads // k_TGD.shape[1]
        k_TND, v_TND = (x.repeat_interleave(shared, dim=1) for x in (k_TGD, v_TGD))
        scores_NTT = torch.einsum("qnd,knd->nqk", q_TND, k_TND).to(torch.float32)
        scores_NTT = (scores_NTT / math.sqrt(size)).masked_fill(hidden_TT, -torch.inf)
        lse_NT = torch.logsumexp(scores_NTT, dim=-1)
        weights_NTT = torch.exp(scores_NTT - lse_NT[..., None]).to(v_TND.dtype)
        return torch.einsum("nqk,knd->qnd", weights_NTT, v_TND), lse_NT.T

    return attend


def flex_document_attention(document_T: torch.Tensor) -> DocumentAttention:
    """The same by torch's flex attention: to be called inside a compiled function, on a GPU."""
    rows = len(document_T)

    def causal_in_document(
        _batch: torch.Tensor, _head: torch.Tensor, query: torch.Tensor, key: torch.Tensor
    ) -> torch.Tensor:
        return (query >= key) & (document_T[query] == document_T[key])

    block_mask = create_block_mask(
        causal_in_document, None, None, rows, rows, device=document_T.device
    )

    def attend(
        q_TND: torch.Tensor, k_TGD: torch.Tensor, v_TGD: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v = (x.transpose(0, 1)[None] for x in (q_TND, k_TGD, v_TGD))
        out, auxiliary = flex_attention(
            q, k, v, block_mask=block_mask, enable_gqa=True, return_aux=AuxRequest(lse=True)
        )
        lse = cast(AuxOutput, auxiliary).lse
        assert lse is not None
        return out[0].transpose(0, 1), lse[0].T

    return attend
