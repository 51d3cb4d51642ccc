"""The draft's head and its soft cross-entropy against the teacher, chunk by chunk.

Logits of a chunk of rows are made, turned into their own gradient in place and used at once for
the gradients of states and head: [T, D] exists for the teacher only, in the compute dtype, and
nothing is computed twice.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch

from eagle3.training.compiled import compiled_for
from eagle3.training.shift import fed_row
from eagle3.training.teacher import Lesson

# 2^27 logits are 256 MiB in bf16: enough rows at a time for matrix products at full rate.
LOGITS_AT_A_TIME = 2**27


@dataclass(frozen=True)
class HeadLoss:
    """`total` is to be differentiated. `loss_ST` (fp32) and `correct_ST` are of single rows."""

    total: torch.Tensor
    loss_ST: torch.Tensor
    correct_ST: torch.Tensor


def head_loss(
    head_DH: torch.Tensor,
    normed: tuple[torch.Tensor, ...],
    lesson: Lesson,
    weight_ST: torch.Tensor,
) -> HeadLoss:
    """The sum over steps and rows of `weight_ST` times -sum_d p(d) log q(d).

    p is the teacher, q the softmax of head_DH @ state; `normed` holds the states [T, H] of each
    step after the draft's norm. A row is correct where p and q have the same most likely token.
    """
    return HeadLoss(*cast(Any, _HeadLoss.apply(head_DH, lesson, weight_ST, *normed)))


class _HeadLoss(torch.autograd.Function):
    """Computes the gradients in the forward pass; the backward one only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        head_DH: torch.Tensor,
        lesson: Lesson,
        weight_ST: torch.Tensor,
        *normed: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rows, dtype = len(normed[0]), normed[0].dtype
        kept_DH = head_DH.to(dtype)
        head_gradient_DH = (
            torch.zeros_like(head_DH, dtype=torch.float32) if ctx.needs_input_grad[0] else None
        )
        gradients = [torch.empty_like(normed_TH) for normed_TH in normed]
        loss_ST = torch.empty_like(weight_ST)
        correct_ST = torch.empty_like(weight_ST, dtype=torch.bool)
        grade = compiled_for(head_DH.device, _grade)
        for step, normed_TH in enumerate(normed):
            for begin, end in chunks(rows, len(head_DH)):
                states_CH = normed_TH[begin:end]
                logits_CD = torch.mm(states_CH, kept_DH.T)
                taught = lesson.rows(begin + fed_row(step), end + fed_row(step))
                loss_ST[step, begin:end], correct_ST[step, begin:end] = grade(
                    logits_CD,
                    taught.logits_TD,
                    taught.lse_T,
                    taught.top1_T,
                    weight_ST[step, begin:end],
                )
                torch.mm(logits_CD, kept_DH, out=gradients[step][begin:end])
                if head_gradient_DH is not None:
                    head_gradient_DH += torch.mm(logits_CD.T, states_CH)
        ctx.head_dtype = head_DH.dtype
        ctx.save_for_backward(head_gradient_DH, *gradients)
        ctx.mark_non_differentiable(loss_ST, correct_ST)
        return (loss_ST * weight_ST).sum(), loss_ST, correct_ST

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        head_gradient_DH, *gradients = ctx.saved_tensors
        if head_gradient_DH is not None:
            head_gradient_DH = (head_gradient_DH * upstream[0]).to(ctx.head_dtype)
        scaled = (gradient * upstream[0].to(gradient.dtype) for gradient in gradients)
        return head_gradient_DH, None, None, *scaled


def chunks(rows: int, logits_per_row: int) -> list[tuple[int, int]]:
    """Begin and end of portions of at most LOGITS_AT_A_TIME logits, one row at least."""
    fewest = -(-rows // max(1, LOGITS_AT_A_TIME // logits_per_row))
    # Equal where twice as many suffice for that: what is compiled for one portion then serves all.
    count = next((n for n in range(fewest, 2 * fewest) if rows % n == 0), fewest)
    size = -(-rows // count)
    return [(begin, min(begin + size, rows)) for begin in range(0, rows, size)]


def _grade(
    logits_CD: torch.Tensor,
    taught_CD: torch.Tensor,
    taught_lse_C: torch.Tensor,
    taught_top1_C: torch.Tensor,
    weight_C: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row's cross-entropy and whether its argmax is right; `logits_CD` become gradients."""
    q_logits_CD = logits_CD.to(torch.float32)
    lse_C, top1_C = torch.logsumexp(q_logits_CD, dim=-1), logits_CD.argmax(-1)
    p_CD = torch.exp(taught_CD.to(torch.float32) - taught_lse_C[:, None])
    loss_C = lse_C - (p_CD * q_logits_CD).sum(-1)
    gradient_CD = (torch.exp(q_logits_CD - lse_C[:, None]) - p_CD) * weight_C[:, None]
    logits_CD.copy_(gradient_CD)
    return loss_C, top1_C == taught_top1_C
