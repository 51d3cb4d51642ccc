"""What a draft is worth, from sums over rows that no step has waited for."""

from dataclasses import dataclass
from itertools import accumulate

import torch

from eagle3.training.unroll import UnrolledLoss


@dataclass(frozen=True)
class StepMetrics:
    """Of each unrolled step: `loss`, and shares of the rows that count.

    `accuracy`: the draft's most likely token was the target's. `joint`: so it was at this step
    and at each before, so that greedy verification would have accepted the token.
    `conditional`: of the rows that were right at each step before, those right at this one, too.
    """

    loss: tuple[float, ...]
    accuracy: tuple[float, ...]
    joint: tuple[float, ...]

    @property
    def conditional(self) -> tuple[float, ...]:
        before = (1.0, *self.joint[:-1])
        return tuple(
            now / then if then else 0.0 for now, then in zip(self.joint, before, strict=True)
        )

    @property
    def acceptance_length(self) -> float:
        """Simulated: tokens a pass of the target gives, its own one and those of the draft."""
        return 1 + sum(self.joint)

    def total_loss(self, decay: float) -> float:
        """The mean of what is minimised."""
        weights = accumulate([1.0] + [decay] * (len(self.loss) - 1), float.__mul__)
        return sum(weight * loss for weight, loss in zip(weights, self.loss, strict=True))


def sums_of(loss: UnrolledLoss, denominator_S: torch.Tensor) -> torch.Tensor:
    """Sums over rows [4, S] of loss, top-1 hits, accepted rows and counted rows, in fp64."""
    rows = (loss.loss_S * denominator_S, loss.top1_correct_S, loss.accepted_S, loss.count_S)
    return torch.stack([row.detach().to(torch.float64) for row in rows])


def metrics_of(sums_4S: torch.Tensor) -> StepMetrics:
    """What the sums tell; zeros where no row counts."""
    loss_S, correct_S, accepted_S, count_S = sums_4S.cpu()
    shares = [(row / count_S.clamp(min=1)).tolist() for row in (loss_S, correct_S, accepted_S)]
    return StepMetrics(*map(tuple, shares))
