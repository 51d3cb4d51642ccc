"""Training-time test: the draft unrolled over its own states, and the loss of every step.

EAGLE-3, arXiv 2503.01840, section 3.2. Rows and shifts are in `shift.py`, attention in
`attention.py`, the teacher in `loss.py`.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from eagle3.draft.model import DraftModel
from eagle3.training.attention import UnrolledAttention, dense_attention
from eagle3.training.batch import PackedBatch
from eagle3.training.loss import Teacher, soft_cross_entropy
from eagle3.training.shift import counts, fed_ids, fed_offset


@dataclass(frozen=True)
class UnrollOptions:
    """`steps` S and the weight `decay`^i of step i; 7 and 0.8 as in the paper's code.

    `feed`: later steps read the true tokens, as in the paper's code and in speculators 0.9.0, or
    the draft's own most likely ones (`argmax`), as in 0.3.0. `compute_dtype` is that of the
    activations; the weights keep theirs.
    """

    steps: int = 7
    decay: float = 0.8
    feed: Literal["true", "argmax"] = "true"
    compute_dtype: torch.dtype = torch.bfloat16


@dataclass(frozen=True)
class UnrolledLoss:
    """All on the device of the batch; nothing here has waited for it.

    `total` is sum_i decay^i loss_S[i], to be differentiated; the rest is detached. `loss_S` is
    the sum of the counted rows' cross-entropies over the denominator. Of the `count_S` counted
    rows, `top1_correct_S` put the teacher's most likely token first at step i, and `accepted_S`
    did so at each step up to i at which they count: a greedy chain would have been accepted.
    """

    total: torch.Tensor
    loss_S: torch.Tensor
    top1_correct_S: torch.Tensor
    accepted_S: torch.Tensor
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
    (several processes, accumulation): `shift.counted_rows` summed over the parts, so that the
    parts' gradients only add up. None: the batch's own counted rows.
    """
    hidden_states_TLH = batch.hidden_states_TLH.to(options.compute_dtype)
    lesson = teacher.teach(hidden_states_TLH[:, -1])
    attend = UnrolledAttention(dense_attention(batch.document_T))
    hidden_TH = model.fuse(hidden_states_TLH[:, :-1])
    accepted_T = torch.ones_like(batch.loss_mask_T)
    ids_T = fed_ids(batch, 0)
    sums, corrects, accepteds, counted = [], [], [], []
    for step in range(options.steps):
        hidden_TH = model(ids_T, hidden_TH, batch.position_T + step, attend)
        logits_TD = model.logits(hidden_TH)
        counts_T = counts(batch, step)
        shifted = lesson.shifted(fed_offset(step))
        sums.append((soft_cross_entropy(logits_TD, shifted) * counts_T).sum())
        correct_T = logits_TD.argmax(-1) == shifted.logits_TD.argmax(-1)
        accepted_T = accepted_T & (correct_T | ~counts_T)
        corrects.append((correct_T & counts_T).sum())
        accepteds.append((accepted_T & counts_T).sum())
        counted.append(counts_T.sum())
        ids_T = (
            fed_ids(batch, step + 1)
            if options.feed == "true"
            else model.target_ids(logits_TD.argmax(-1))
        )
    count_S = torch.stack(counted)
    divisor_S = (count_S if denominator_S is None else denominator_S).clamp(min=1)
    loss_S = torch.stack(sums) / divisor_S
    decay_S = torch.tensor([options.decay**i for i in range(options.steps)], device=loss_S.device)
    return UnrolledLoss(
        (loss_S * decay_S).sum(),
        loss_S.detach(),
        torch.stack(corrects),
        torch.stack(accepteds),
        count_S,
    )
