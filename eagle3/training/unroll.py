"""Training-time test: the draft unrolled over its own states, and the loss of every step.

EAGLE-3, arXiv 2503.01840, section 3.2. What belongs to which row is said in `shift.py`, what a
row attends to in `attention.py`, what it learns from in `teacher.py`. On a GPU the same code runs
compiled, with flex attention; docs/training-speed.md tells what each part costs.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from eagle3.draft.model import DraftModel
from eagle3.training.attention import (
    UnrolledAttention,
    dense_attention,
    flex_document_attention,
)
from eagle3.training.batch import PackedBatch
from eagle3.training.compiled import compiled_for
from eagle3.training.loss import head_loss
from eagle3.training.shift import ahead, counted, fed_row
from eagle3.training.teacher import Lesson, Teacher

Feed = Literal["true", "argmax"]


@dataclass(frozen=True)
class UnrollOptions:
    """`steps` S and the weight `decay`^i of step i; 7 and 0.8 as in the paper's code.

    `feed`: later steps read the true tokens, as in the paper's code and in speculators 0.9.0, or
    the draft's own most likely ones (`argmax`), as in 0.3.0. `compute_dtype` is that of the
    activations; the weights keep theirs.
    """

    steps: int = 7
    decay: float = 0.8
    feed: Feed = "true"
    compute_dtype: torch.dtype = torch.bfloat16


@dataclass(frozen=True)
class UnrolledLoss:
    """All on the device of the batch; nothing here has waited for it.

    `total` is sum_i decay^i loss_S[i], to be differentiated; the rest is detached. `loss_S` is
    the sum of the counted rows' cross-entropies over the denominator. Of the `count_S` counted
    rows, `top1_correct_S` put the teacher's most likely token first at step i, and `accepted_S`
    did so at each step up to i at which they count: a greedy chain would have been accepted.
    `reached_S` of them did so at each step before, so that step i is tried at all.
    """

    total: torch.Tensor
    loss_S: torch.Tensor
    top1_correct_S: torch.Tensor
    accepted_S: torch.Tensor
    reached_S: torch.Tensor
    count_S: torch.Tensor


def unrolled_loss(
    model: DraftModel,
    teacher: Teacher,
    batch: PackedBatch,
    options: UnrollOptions,
    denominator_S: torch.Tensor | None = None,
) -> UnrolledLoss:
    """The loss of one batch.

    `denominator_S` is by what each step's sum is divided, where the batch is a part of a step
    (several processes, accumulation): `shift.counted_rows` summed over all parts, so that their
    gradients only add up. None: the batch's own counted rows.
    """
    device = batch.input_ids_T.device
    states_TLH = batch.hidden_states_TLH.to(options.compute_dtype)
    lesson = compiled_for(device, _teach)(teacher, states_TLH[:, -1], options.steps)
    normed = compiled_for(device, unroll)(
        model,
        batch.input_ids_T,
        states_TLH[:, :-1],
        batch.document_T,
        batch.position_T,
        options.steps,
        options.feed,
    )
    counted_ST = counted(batch, options.steps)
    count_S = counted_ST.sum(-1)
    divisor_S = (count_S if denominator_S is None else denominator_S).clamp(min=1)
    decay_S = options.decay ** torch.arange(options.steps, device=device)
    weight_ST = counted_ST * (decay_S / divisor_S)[:, None]
    graded = head_loss(model.lm_head.weight, normed, lesson, weight_ST)
    accepted_ST = (graded.correct_ST | ~counted_ST).cumprod(0, dtype=torch.int64)
    reached_ST = torch.cat((torch.ones_like(accepted_ST[:1]), accepted_ST[:-1]))
    return UnrolledLoss(
        graded.total,
        (graded.loss_ST * counted_ST).sum(-1) / divisor_S,
        (graded.correct_ST & counted_ST).sum(-1),
        (accepted_ST * counted_ST).sum(-1),
        (reached_ST * counted_ST).sum(-1),
        count_S,
    )


def unroll(
    model: DraftModel,
    input_ids_T: torch.Tensor,
    fused_T3H: torch.Tensor,
    document_T: torch.Tensor,
    position_T: torch.Tensor,
    steps: int,
    feed: Feed,
) -> tuple[torch.Tensor, ...]:
    """The draft's states after its norm [T, H], of each step."""
    documents = dense_attention if document_T.device.type == "cpu" else flex_document_attention
    attend = UnrolledAttention(documents(document_T))
    hidden_TH = model.fuse(fused_T3H)
    # Each token is projected once, and read by another row at every step.
    projected_TP = model.project(input_ids_T, hidden_TH.dtype)
    fed_TP = ahead(projected_TP, fed_row(0))
    normed = []
    for step in range(steps):
        if step and feed == "true":
            fed_TP = ahead(projected_TP, fed_row(step))
        elif step:
            with torch.no_grad():
                guess_T = model.lm_head(normed[-1]).argmax(-1)
            fed_TP = model.project(model.target_ids(guess_T), hidden_TH.dtype)
        hidden_TH = model.step(fed_TP, hidden_TH, position_T + step, attend)
        normed.append(model.norm(hidden_TH))
    return tuple(normed)


def _teach(teacher: Teacher, last_state_TH: torch.Tensor, steps: int) -> Lesson:
    with torch.no_grad():
        return teacher.teach(last_state_TH, steps)
