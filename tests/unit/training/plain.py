"""The unrolled loss written down once more, as literally as can be, to compare the real one with.

One document at a time; embedding and state concatenated; the keys of all steps in one dense
attention with an explicit mask; the target's whole vocabulary; loss and gradients by autograd.
"""

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from eagle3.draft.model import DraftModel
from eagle3.draft.target_weights import TargetWeights
from eagle3.training.batch import PackedBatch


@dataclass(frozen=True)
class PlainLoss:
    """Sums over the rows that count, not yet divided; see UnrolledLoss."""

    sum_S: torch.Tensor
    top1_correct_S: torch.Tensor
    accepted_S: torch.Tensor
    count_S: torch.Tensor


def plain_loss(
    model: DraftModel, weights: TargetWeights, batch: PackedBatch, steps: int, feed: str
) -> PlainLoss:
    sums = [torch.zeros(()) for _ in range(steps)]
    tallies = torch.zeros(3, steps, dtype=torch.int64)
    for document in range(int(batch.document_T.max()) + 1):
        rows = torch.nonzero(batch.document_T == document).squeeze(1)
        ids = batch.input_ids_T[rows].tolist()
        supervised = batch.loss_mask_T[rows].tolist()
        states_TLH = batch.hidden_states_TLH[rows].to(torch.float32)
        logits_STD = unrolled_logits(model, states_TLH[:, :3].flatten(1), ids, steps, feed)
        known = model.t2d.nonzero().squeeze(1)
        normed_TH = _norm(states_TLH[:, 3], weights.final_norm_H, weights.rms_norm_eps)
        target_TV = torch.softmax(normed_TH @ weights.lm_head_VH.to(torch.float32).T, -1)
        for row in range(len(ids)):
            hits = []
            for step in range(steps):
                if row + 2 + step >= len(ids) or not supervised[row + 2 + step]:
                    continue
                p_D = target_TV[row + 1 + step][known]
                log_q_D = torch.log_softmax(logits_STD[step][row], -1)
                sums[step] = sums[step] - (p_D / p_D.sum() * log_q_D).sum()
                hits.append(bool(p_D.argmax() == log_q_D.argmax()))
                tallies[:, step] += torch.tensor([hits[-1], all(hits), 1])
    return PlainLoss(torch.stack(sums), *tallies)


def unrolled_logits(
    model: DraftModel, fused_TF: torch.Tensor, ids: list[int], steps: int, feed: str
) -> list[torch.Tensor]:
    """The draft's logits [T, D] at each step over one document."""
    config, rows = model.config, len(ids)
    layer, attention = model.layer, model.layer.self_attn
    heads, groups, size = (
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
    )
    hidden_TH = fused_TF @ model.fc.weight.T
    keys, values, logits = [], [], []
    fed = [*ids[1:], 0]
    for step in range(steps):
        embedding_TH = functional.embedding(torch.tensor(fed), model.embed_tokens.weight)
        embedding_TH = embedding_TH.to(torch.float32)
        eps = config.rms_norm_eps
        normed_TH = _norm(hidden_TH, layer.hidden_norm.weight, eps)
        x_TE = torch.cat((_norm(embedding_TH, layer.input_layernorm.weight, eps), normed_TH), -1)
        q_NTD = (x_TE @ attention.q_proj.weight.T).view(rows, heads, size).transpose(0, 1)
        k_GTD = (x_TE @ attention.k_proj.weight.T).view(rows, groups, size).transpose(0, 1)
        v_GTD = (x_TE @ attention.v_proj.weight.T).view(rows, groups, size).transpose(0, 1)
        positions = torch.arange(rows) + step
        keys.append(_turn(k_GTD, positions, config.rope_theta))
        values.append(v_GTD)
        seen = [torch.ones(rows, rows).tril()] + [torch.eye(rows)] * step
        out_NTD = functional.scaled_dot_product_attention(
            _turn(q_NTD, positions, config.rope_theta),
            torch.cat(keys, 1).repeat_interleave(heads // groups, 0),
            torch.cat(values, 1).repeat_interleave(heads // groups, 0),
            torch.cat(seen, 1).bool(),
        )
        attended_TH = out_NTD.transpose(0, 1).flatten(1) @ attention.o_proj.weight.T
        start_TH = normed_TH if config.norm_before_residual else hidden_TH
        middle_TH = start_TH + attended_TH
        y_TH = _norm(middle_TH, layer.post_attention_layernorm.weight, eps)
        gate_TI = functional.silu(y_TH @ layer.mlp.gate_proj.weight.T)
        up_TI = y_TH @ layer.mlp.up_proj.weight.T
        hidden_TH = middle_TH + (gate_TI * up_TI) @ layer.mlp.down_proj.weight.T
        logits.append(_norm(hidden_TH, model.norm.weight, eps) @ model.lm_head.weight.T)
        fed = [*ids[2 + step :], *[0] * (2 + step)][:rows]
        if feed == "argmax":
            known = model.t2d.nonzero().squeeze(1)
            fed = known[logits[-1].argmax(-1)].tolist()
    return logits


def _norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return functional.rms_norm(x, x.shape[-1:], weight.to(x.dtype), eps)


def _turn(x_NTD: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    """Rotary embedding as a product of complex numbers, (real, imaginary) in two halves."""
    half = x_NTD.shape[-1] // 2
    speed = torch.tensor([math.pow(theta, -number / half) for number in range(half)])
    turn = torch.polar(torch.ones(()), positions[:, None] * speed)
    turned = torch.complex(x_NTD[..., :half], x_NTD[..., half:]) * turn
    return torch.cat((turned.real, turned.imag), -1)
