"""What the draft learns from: the target's own distribution, over the draft's vocabulary.

softmax(lm_head(final_norm(last state))), renormalised to the draft's tokens, as in EAGLE-3's code
(arXiv 2503.01840, `traineagle3/cnets.py`) and speculators 0.9.0; 0.3.0 leaves the final norm out.
Unlike the paper's code, a row whose most likely token the draft does not know is not left out:
there the draft learns the best that it knows.
"""

from dataclasses import dataclass

import torch

from eagle3.draft.model import rms_norm
from eagle3.draft.target_weights import TargetWeights
from eagle3.draft.vocabulary import VocabularyMap


@dataclass(frozen=True)
class Lesson:
    """Logits [T + S, D] in the compute dtype, their log-sum-exp in fp32 and their argmax.

    The last S rows are zeros, so that the rows of every step are a view.
    """

    logits_TD: torch.Tensor
    lse_T: torch.Tensor
    top1_T: torch.Tensor

    def rows(self, begin: int, end: int) -> "Lesson":
        return Lesson(self.logits_TD[begin:end], self.lse_T[begin:end], self.top1_T[begin:end])


@dataclass(frozen=True)
class Teacher:
    """The target's final norm, and its head cut to the draft's vocabulary."""

    head_DH: torch.Tensor
    final_norm_H: torch.Tensor
    rms_norm_eps: float

    @classmethod
    def of(cls, weights: TargetWeights, vocabulary: VocabularyMap) -> "Teacher":
        ids_D = vocabulary.target_ids.to(weights.lm_head_VH.device)
        return cls(weights.lm_head_VH[ids_D], weights.final_norm_H, weights.rms_norm_eps)

    def to(self, device: torch.device | str) -> "Teacher":
        return Teacher(self.head_DH.to(device), self.final_norm_H.to(device), self.rms_norm_eps)

    def teach(self, last_state_TH: torch.Tensor, steps: int) -> Lesson:
        """What the target says after each row, from its residual stream before the final norm."""
        rows, size = len(last_state_TH), len(self.head_DH)
        logits_TD = last_state_TH.new_empty(rows + steps, size)
        logits_TD[rows:] = 0.0
        normed_TH = rms_norm(last_state_TH, self.final_norm_H, self.rms_norm_eps)
        head_DH = self.head_DH.to(normed_TH.dtype)
        torch.mm(normed_TH, head_DH.T, out=logits_TD[:rows])
        lse_T = torch.logsumexp(logits_TD.to(torch.float32), dim=-1)
        return Lesson(logits_TD, lse_T, logits_TD.argmax(-1))
