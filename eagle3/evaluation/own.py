"""The backend for machines where vLLM cannot speculate: transformers, one prompt at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from eagle3.draft.export import load_draft
from eagle3.draft.served_config import read_config
from eagle3.evaluation.acceptance import Acceptance
from eagle3.evaluation.backend import Run
from eagle3.evaluation.drafting import Drafter
from eagle3.evaluation.prompts import Prompt, PromptSet
from eagle3.evaluation.report import Result
from eagle3.evaluation.speculation import Decoding, Generation, generate
from eagle3.evaluation.target import Target
from eagle3.progress import Progress


class OwnBackend:
    """Target and draft in float32 on one device."""

    name = "own"
    tie = 1e-3
    timed_rounds_otherwise = False

    def __init__(
        self, model: Path, draft: Path, prompts: PromptSet, decoding: Decoding, progress: Progress
    ) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self._target = Target(model, read_config(draft).capture_points, self.device)
        self._prompts = prompts.prompts
        self._decoding = replace(decoding, stop_ids=prompts.stop_ids)
        self._progress = progress

    def run(
        self, name: str, draft: Path | None, temperatures: Sequence[float], *, timed: bool
    ) -> Iterator[Run]:
        drafter = Drafter(load_draft(draft).float().to(self.device)) if draft else None
        for temperature in temperatures:
            yield self._pass(name, drafter, temperature, timed)

    def _pass(self, name: str, drafter: Drafter | None, temperature: float, timed: bool) -> Run:
        what = f"{name}, temperature {temperature:g}" if temperature else f"{name}, greedy"
        budget = self._decoding.max_new_tokens * len(self._prompts)
        outputs: list[tuple[int, ...]] = []
        kinds: dict[str, Acceptance] = {}
        seconds = 0.0
        with self._progress.bar(what, samples=len(self._prompts), tokens=budget) as bar:
            for number, prompt in enumerate(self._prompts):
                generation = self._generate(drafter, prompt, temperature, number)
                outputs.append(generation.tokens)
                seconds += generation.seconds
                before = kinds.get(prompt.kind, Acceptance.none(self._decoding.speculative_tokens))
                kinds[prompt.kind] = before + generation.acceptance
                bar.advance(samples=1, tokens=len(generation.tokens))
        # The first token of each is the prompt's pass, which is not timed.
        tokens = sum(len(output) - 1 for output in outputs)
        speeds = {1: tokens / seconds if seconds else 0.0} if timed else {}
        return Run(tuple(outputs), Result(kinds, speeds))

    def _generate(
        self, drafter: Drafter | None, prompt: Prompt, temperature: float, number: int
    ) -> Generation:
        decoding = replace(
            self._decoding, temperature=temperature, seed=self._decoding.seed + number
        )
        return generate(self._target, drafter, prompt.tokens, decoding)

    @torch.inference_mode()
    def gap(self, prompt: Prompt, output: Sequence[int], position: int, other: int) -> float:
        self._target.start()
        logits_1V, _ = self._target.read([*prompt.tokens, *output[:position]], scores=1)
        return float(logits_1V[0, output[position]] - logits_1V[0, other])
