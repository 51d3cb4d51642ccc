"""What an evaluation asks of whatever runs the target."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from eagle3.evaluation.prompts import Prompt
from eagle3.evaluation.report import Result


@dataclass(frozen=True)
class Run:
    """One pass over all prompts: `outputs` are the generated tokens, in the prompts' order."""

    outputs: tuple[tuple[int, ...], ...]
    result: Result


class Backend(Protocol):
    """Runs a target alone and with exported drafts, on one set of prompts.

    `tie` is the gap in log-probability below which its arithmetic cannot tell two tokens apart.
    """

    name: str
    device: str
    tie: float

    def run(self, draft: Path | None, temperatures: Sequence[float], *, timed: bool) -> list[Run]:
        """A pass over the prompts at each temperature; where not `timed`, speed does not matter."""

    def gap(self, prompt: Prompt, output: Sequence[int], position: int, other: int) -> float:
        """By how much the target alone, after `output[:position]`, prefers its token to `other`.

        Follows a run of the target alone.
        """
