"""Counts of accepted tokens, and the figures that people compare drafts by.

A *step* is one forward pass of the target that verifies a chain of K drafted tokens. It accepts the
first 0 to K of them and adds one token of its own (the bonus), as vLLM 0.16.0 counts
(`vllm/v1/spec_decode/metrics.py`). The pass over the prompt is no step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Acceptance:
    """`steps[a]` is the number of steps that accepted exactly `a` tokens, a = 0 to K."""

    steps: tuple[int, ...]

    @classmethod
    def none(cls, speculative_tokens: int) -> "Acceptance":
        return cls((0,) * (speculative_tokens + 1))

    @classmethod
    def of_positions(cls, drafts: int, accepted: Sequence[int]) -> "Acceptance":
        """From vLLM's counters: `accepted[i]` steps of `drafts` accepted drafted token i."""
        at_least = [drafts, *accepted, 0]
        return cls(tuple(more - less for more, less in pairwise(at_least)))

    def with_step(self, accepted: int) -> "Acceptance":
        return Acceptance(tuple(n + (a == accepted) for a, n in enumerate(self.steps)))

    def __add__(self, other: "Acceptance") -> "Acceptance":
        return Acceptance(tuple(a + b for a, b in zip(self.steps, other.steps, strict=True)))

    @property
    def count(self) -> int:
        """The number of steps."""
        return sum(self.steps)

    @property
    def length(self) -> float:
        """Tokens a step, the bonus included: 1 where nothing is accepted, K + 1 where all is."""
        accepted = sum(a * n for a, n in enumerate(self.steps))
        return 1.0 + accepted / self.count if self.count else 1.0

    @property
    def length_error(self) -> float:
        """The standard error of `length`, steps taken as independent."""
        if self.count < 2:
            return math.inf
        mean = self.length - 1.0
        squares = sum(n * (a - mean) ** 2 for a, n in enumerate(self.steps))
        return math.sqrt(squares / (self.count - 1) / self.count)

    @property
    def joint(self) -> tuple[float, ...]:
        """For each drafted token the share of steps that accepted it, and so all before it."""
        return tuple(sum(self.steps[i:]) / max(self.count, 1) for i in range(1, len(self.steps)))

    @property
    def conditional(self) -> tuple[float, ...]:
        """For each drafted token the share of steps that accepted it, of those that got to it."""
        return tuple(
            sum(self.steps[i:]) / max(sum(self.steps[i - 1 :]), 1)
            for i in range(1, len(self.steps))
        )

    def clearly_above(self, other: "Acceptance") -> bool:
        """Whether `length` is greater by more than three standard errors of the difference."""
        error = math.hypot(self.length_error, other.length_error)
        return self.length - other.length > 3.0 * error
