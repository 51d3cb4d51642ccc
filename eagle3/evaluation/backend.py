"""What an evaluation asks of whatever runs the target."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import eq
from pathlib import Path
from typing import Protocol

from eagle3.evaluation.prompts import Prompt
from eagle3.evaluation.report import Result


@dataclass(frozen=True)
class Run:
    """One pass over all prompts: `outputs` are the generated tokens, in the prompts' order.

    `batched` are those of the passes that were timed with several prompts at once, by how many.
    """

    outputs: tuple[tuple[int, ...], ...]
    result: Result
    batched: Mapping[int, tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    def identical(self, alone: "Run") -> dict[int, float]:
        """The share of outputs that are those of `alone`, by the number of prompts at once."""
        passes = {1: self.outputs, **self.batched}
        return {
            batch: sum(map(eq, outputs, alone.outputs)) / len(alone.outputs)
            for batch, outputs in passes.items()
        }


class Backend(Protocol):
    """Runs a target alone and with exported drafts, on one set of prompts.

    `tie` is the gap in log-probability below which its arithmetic cannot tell two tokens apart.
    `timed_rounds_otherwise`: timed runs compute with other kernels than those that are not, so that
    the outputs of one kind say nothing of the other's.
    """

    name: str
    device: str
    tie: float
    timed_rounds_otherwise: bool

    def run(
        self, name: str, draft: Path | None, temperatures: Sequence[float], *, timed: bool
    ) -> Iterator[Run]:
        """A pass over the prompts at each temperature, as it ends; only `timed` ones have speeds.

        `draft` None is the target alone; `name` is what the progress is of. The passes must be
        taken to the end: what runs them stops there.
        """

    def gap(self, prompt: Prompt, output: Sequence[int], position: int, other: int) -> float:
        """By how much the target alone, after `output[:position]`, prefers its token to `other`.

        Follows a run of the target alone.
        """
