"""What an evaluation found."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from eagle3.evaluation.acceptance import Acceptance
from eagle3.preparation.request import ReasoningPolicy


@dataclass(frozen=True)
class Divergence:
    """Where an output left the target's own.

    `gap` is by how much the target scored its own token above the other one, in log-probability.
    """

    place: str
    position: int
    gap: float


@dataclass(frozen=True)
class Result:
    """One draft at one temperature; `tokens_per_s` by the number of prompts run at once."""

    acceptance: Mapping[str, Acceptance]  # by kind of prompt
    tokens_per_s: Mapping[int, float]

    @property
    def total(self) -> Acceptance:
        kinds = list(self.acceptance.values())
        return sum(kinds[1:], start=kinds[0])


@dataclass(frozen=True)
class EvaluationReport:
    """The draft, greedy and sampled, beside the floors and the target alone.

    `floors` and `beside`, other drafts, are by name, and `failed` says of each of them that could
    not be measured why. Speeds and `identical` are empty where nothing was timed. `tie` is the gap
    up to which two tokens are equal to the arithmetic used. `identical` is the share of the draft's
    greedy outputs that are token for token what the target alone gave one prompt at a time, by the
    number of prompts at once; `identical_alone` is the same of the target alone, whose arithmetic
    may differ by batch. `reasoning` says whether the questions asked the target to think, None
    where they came ready.
    """

    backend: str
    device: str
    prompts: int
    speculative_tokens: int
    greedy: Result
    sampled: Result | None
    temperature: float
    floors: Mapping[str, Result]
    alone_tokens_per_s: Mapping[int, float]
    reasoning: ReasoningPolicy | None = None
    beside: Mapping[str, Result] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    identical: Mapping[int, float] = field(default_factory=dict)
    identical_alone: Mapping[int, float] = field(default_factory=dict)
    divergences: tuple[Divergence, ...] = ()
    tie: float = 0.0

    @property
    def widest_gap(self) -> float:
        """The gap of the worst divergence; 0 where every output is the target's own."""
        return max((divergence.gap for divergence in self.divergences), default=0.0)

    @property
    def lossless(self) -> bool:
        """Whether every greedy output is the target's own, but for ties of its arithmetic."""
        return self.widest_gap <= self.tie

    @property
    def floor(self) -> Result | None:
        """The best of the floors that were measured."""
        return max(self.floors.values(), key=lambda result: result.total.length, default=None)

    @property
    def clearly_wins(self) -> bool:
        floor = self.floor
        return floor is not None and self.greedy.total.clearly_above(floor.total)
