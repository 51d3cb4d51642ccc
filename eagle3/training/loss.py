"""Soft cross-entropy of the draft's head against the target's, without [T, D] in fp32.

The teacher is softmax(lm_head(final_norm(last state))) over the draft's vocabulary only, that is
renormalised to it, as in EAGLE-3's code (arXiv 2503.01840, `traineagle3/cnets.py`) and speculators
0.9.0; 0.3.0 leaves the final norm out. Unlike the paper's code, a row whose most likely target
token is outside the draft's vocabulary is not dropped: there the draft learns the next best.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from eagle3.draft.model import rms_norm
from eagle3.draft.target_weights import TargetWeights
from eagle3.draft.vocabulary import VocabularyMap

# Rows at a time: 2^27 logits are 256 MiB in bf16, large enough for matrix products at full rate.
_LOGITS_AT_A_TIME = 2**27


@dataclass(frozen=True)
class Teacher:
    """The target's final norm and head, cut to the draft's vocabulary."""

    head_DH: torch.Tensor
    final_norm_H: torch.Tensor
    rms_norm_eps: float

    @classmethod
    def of(cls, weights: TargetWeights, vocabulary: VocabularyMap) -> "Teacher":
        ids_D = vocabulary.target_ids.to(weights.lm_head_VH.device)
        return cls(weights.lm_head_VH[ids_D], weights.final_norm_H, weights.rms_norm_eps)

    def to(self, device: torch.device | str) -> "Teacher":
        return Teacher(self.head_DH.to(device), self.final_norm_H.to(device), self.rms_norm_eps)

    @torch.no_grad()
    def teach(self, last_state_TH: torch.Tensor) -> "Lesson":
        """What the target says after each row, from its residual stream before the final norm."""
        normed_TH = rms_norm(last_state_TH, self.final_norm_H, self.rms_norm_eps)
        logits_TD = functional.linear(normed_TH, self.head_DH.to(normed_TH.dtype))
        return Lesson(logits_TD, torch.logsumexp(logits_TD.to(torch.float32), dim=-1))


@dataclass(frozen=True)
class Lesson:
    """Logits of the teacher in the compute dtype, and their log-sum-exp in fp32."""

    logits_TD: torch.Tensor
    lse_T: torch.Tensor

    def shifted(self, by: int) -> "Lesson":
        """Row t is row t + `by` of this one; the last rows, which never count, are any."""
        return Lesson(self.logits_TD.roll(-by, 0), self.lse_T.roll(-by, 0))


def soft_cross_entropy(logits_TD: torch.Tensor, lesson: Lesson) -> torch.Tensor:
    """-sum_d p(d) log q(d) of each row [T]: p the teacher, q the draft."""
    teacher_TD = torch.exp(lesson.logits_TD.to(torch.float32) - lesson.lse_T[:, None])
    return -(teacher_TD * torch.log_softmax(logits_TD.to(torch.float32), dim=-1)).sum(-1)
