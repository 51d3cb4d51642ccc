"""Stands in for the engine that generates: what it says follows from prompt and seed alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from eagle3.engine.generation import Generated, GenerationOptions, Sampling

# What is said to a prompt by a seed, of so many tokens at most; the stop token is added.
Speech = Callable[[list[int], int], Sequence[int]]


@dataclass(frozen=True)
class Submission:
    """One call of `submit`."""

    key: str
    prompt: list[int]
    sampling: Sampling
    max_tokens: int
    seed: int


class FakeGenerator:
    """Ends one prompt a step, the youngest first, so that nothing comes back in order."""

    def __init__(self, speech: Speech, sequences_at_once: int = 2) -> None:
        self.sequences_at_once = sequences_at_once
        self.submitted: list[Submission] = []
        self.most_running = 0
        self._speech = speech
        self._running: list[Submission] = []

    def __call__(self, options: GenerationOptions) -> Self:
        self.options = options
        return self

    def submit(
        self, key: str, prompt_T: Sequence[int], sampling: Sampling, *, max_tokens: int, seed: int
    ) -> None:
        assert key not in {running.key for running in self._running}
        submission = Submission(key, list(prompt_T), sampling, max_tokens, seed)
        self.submitted.append(submission)
        self._running.append(submission)
        self.most_running = max(self.most_running, len(self._running))

    def step(self) -> list[Generated]:
        asked = self._running.pop()
        ids = (*self._speech(asked.prompt, asked.seed), asked.sampling.stop_ids[-1])
        cut = len(ids) > asked.max_tokens
        return [Generated(asked.key, ids[: asked.max_tokens], cut)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.clear()
