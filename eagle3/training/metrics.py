"""What a draft is worth, from sums over rows that no step has waited for."""

from dataclasses import dataclass

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
    conditional: tuple[float, ...]

    @property
    def acceptance_length(self) -> float:
        """Simulated: tokens a pass of the target gives, its own one and those of the draft."""
        return 1 + sum(self.joint)

    def total_loss(self, decay: float) -> float:
        """What is minimised."""
        return sum(decay**step * loss for step, loss in enumerate(self.loss))


# Sums over rows of loss, top-1 hits, accepted, reached and counted rows.
SUMS = 5


def sums_of(loss: UnrolledLoss, denominator_S: torch.Tensor) -> torch.Tensor:
    """Sums over rows [SUMS, S] of one batch, in fp64, to be added to those of others.

    `denominator_S` is the one that `loss` was made with.
    """
    rows = (
        loss.loss_S * denominator_S,
        loss.top1_correct_S,
        loss.accepted_S,
        loss.reached_S,
        loss.count_S,
    )
    return torch.stack([row.detach().to(torch.float64) for row in rows])


def metrics_of(sums_NS: torch.Tensor) -> StepMetrics:
    """What the sums tell; zeros where no row counts. Waits for the device."""
    loss_S, correct_S, accepted_S, reached_S, count_S = sums_NS.cpu()

    def shares(part_S: torch.Tensor, whole_S: torch.Tensor) -> tuple[float, ...]:
        return tuple((part_S / whole_S.clamp(min=1)).tolist())

    return StepMetrics(
        loss=shares(loss_S, count_S),
        accuracy=shares(correct_S, count_S),
        joint=shares(accepted_S, count_S),
        conditional=shares(accepted_S, reached_S),
    )
