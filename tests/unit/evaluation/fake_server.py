"""Stands in for vLLM, which needs a GPU."""

from collections.abc import Sequence
from typing import Self

from eagle3.engine.serving import Served, ServingOptions, Told


class FakeServer:
    """Answers each prompt with its first token and how many run at once; accepts 3 of 4 drafts.

    `calls` are the prompts' number, how many at once, and the temperature of each call; `seeds`
    those that it was given above temperature 0.
    """

    calls: list[tuple[int, int, float]]
    eager: bool
    seeds: list[int]
    scored_differs = False

    def __init__(self, options: ServingOptions) -> None:
        type(self).calls, type(self).eager, type(self).seeds = [], options.eager, []
        self._draft = options.draft

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def warm_up(self, prompt: Sequence[int], batch: int) -> None:
        pass

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        temperature: float = 0.0,
        seeds: Sequence[int] = (),
        batch: int = 1,
        scores: int = 0,
        on_done: Told | None = None,
    ) -> Served:
        if not scores:
            self.calls.append((len(prompts), batch, temperature))
        if temperature:
            self.seeds.extend(seeds)
        outputs = tuple((prompt[0], min(batch, 2)) for prompt in prompts)
        if scores and self.scored_differs:
            outputs = tuple((first, 7) for first, _ in outputs)
        if on_done is not None:
            on_done(samples=len(outputs), tokens=sum(map(len, outputs)))
        table = tuple((dict.fromkeys(output, 0.0),) * 2 for output in outputs)
        accepted = (3 * len(prompts), 0) if self._draft else ()
        return Served(outputs, 2.0 / batch, 4 * len(prompts), accepted, table if scores else ())
