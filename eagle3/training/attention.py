"""Attention of the unrolled steps: the documents' first keys, and each row's own later ones.

At step i a row attends to the step-0 keys of the rows up to itself in its document, and to the
keys of steps 1 to i of its own row only: what a drafting chain that starts at the row sees. The
second part is a handful of products a row. It is merged with the first by log-sum-exp, where
others append it to the keys: the first part then has one mask and one shape for all steps.
"""

import math
from collections.abc import Callable
from typing import cast

import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import (
    AuxOutput,
    AuxRequest,
    BlockMask,
    flex_attention,
)

# Of flex attention: the side of a square of scores that is skipped or computed.
_BLOCK = 128

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
    grouped = (rows, own_keys[0].shape[1], -1, size)
    q_TGMD = q_TND.reshape(grouped).to(torch.float32)
    lse_TGM = lse_TN.reshape(grouped[:3])
    scores = [(q_TGMD * k_TGD[:, :, None]).sum(-1) / math.sqrt(size) for k_TGD in own_keys]
    weights = torch.stack([lse_TGM, *scores]).softmax(dim=0)[..., None]
    merged_TGMD = weights[0] * out_TND.reshape(grouped)
    for weight_TGM1, v_TGD in zip(weights[1:], own_values, strict=True):
        merged_TGMD = merged_TGMD + weight_TGM1 * v_TGD[:, :, None]
    return merged_TGMD.reshape(rows, heads, size).to(out_TND.dtype)


def dense_attention(document_T: torch.Tensor) -> DocumentAttention:
    """All scores of a document at a time, in plain PyTorch; waits for the documents' lengths."""
    lengths = torch.unique_consecutive(document_T, return_counts=True)[1].tolist()

    def attend(
        q_TND: torch.Tensor, k_TGD: torch.Tensor, v_TGD: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        documents = zip(*(x.split(lengths) for x in (q_TND, k_TGD, v_TGD)), strict=True)
        outs, lses = zip(*(_causal(*document) for document in documents), strict=True)
        return torch.cat(outs), torch.cat(lses)

    return attend


def _causal(
    q_TND: torch.Tensor, k_TGD: torch.Tensor, v_TGD: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    rows, heads, size = q_TND.shape
    shared = heads // k_TGD.shape[1]
    k_TND, v_TND = (x.repeat_interleave(shared, dim=1) for x in (k_TGD, v_TGD))
    scores_NTT = torch.einsum("qnd,knd->nqk", q_TND, k_TND).to(torch.float32) / math.sqrt(size)
    future_TT = torch.ones(rows, rows, dtype=torch.bool, device=q_TND.device).triu(1)
    scores_NTT = scores_NTT.masked_fill(future_TT, -torch.inf)
    lse_NT = torch.logsumexp(scores_NTT, dim=-1)
    weights_NTT = torch.exp(scores_NTT - lse_NT[..., None]).to(v_TND.dtype)
    return torch.einsum("nqk,knd->qnd", weights_NTT, v_TND), lse_NT.T


def flex_document_attention(document_T: torch.Tensor) -> DocumentAttention:
    """The same by torch's flex attention: for a compiled function; gradients need a GPU.

    The documents are data of the kernel, not part of it: one compilation serves all packings.
    """
    rows = len(document_T)

    def causal_in_document(
        _batch: torch.Tensor, _head: torch.Tensor, query: torch.Tensor, key: torch.Tensor
    ) -> torch.Tensor:
        return (query >= key) & (document_T[query] == document_T[key])

    mask = BlockMask.from_kv_blocks(
        *_blocks(document_T),
        BLOCK_SIZE=_BLOCK,
        mask_mod=causal_in_document,
        seq_lengths=(rows, rows),
    )

    def attend(
        q_TND: torch.Tensor, k_TGD: torch.Tensor, v_TGD: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v = (x.transpose(0, 1)[None] for x in (q_TND, k_TGD, v_TGD))
        out, auxiliary = flex_attention(
            q, k, v, block_mask=mask, enable_gqa=True, return_aux=AuxRequest(lse=True)
        )
        lse = cast(AuxOutput, auxiliary).lse
        assert lse is not None
        return out[0].transpose(0, 1), lse[0].T

    return attend


def _blocks(document_T: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """For each block of queries, how many blocks of keys it reads in part, and which; then whole.

    As torch's `create_block_mask`, which torch 2.9 cannot trace on CPython 3.13.
    """
    rows = len(document_T)
    count = -(-rows // _BLOCK)
    document_T = functional.pad(document_T, (0, count * _BLOCK - rows), value=-2)
    place_T = torch.arange(count * _BLOCK, device=document_T.device)
    seen_TT = (place_T[:, None] >= place_T) & (document_T[:, None] == document_T)
    seen_BB = seen_TT.view(count, _BLOCK, count, _BLOCK).sum((1, 3))
    whole_BB = seen_BB == _BLOCK * _BLOCK
    return *_listed((seen_BB > 0) & ~whole_BB), *_listed(whole_BB)


def _listed(chosen_BB: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """How many blocks of each row are chosen, and their numbers first, with two leading ones."""
    numbers_BB = chosen_BB.to(torch.int32).argsort(dim=-1, descending=True, stable=True)
    return (
        chosen_BB.sum(-1, dtype=torch.int32)[None, None],
        numbers_BB.to(torch.int32)[None, None],
    )
