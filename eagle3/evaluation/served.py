"""The backend for GPUs: vLLM's own EAGLE-3 serving of the exported draft."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from eagle3.engine.serving import Served, Server, ServingOptions
from eagle3.evaluation.acceptance import Acceptance
from eagle3.evaluation.backend import Run
from eagle3.evaluation.prompts import Prompt, PromptSet
from eagle3.evaluation.report import Result
from eagle3.evaluation.request import EvaluationRequest
from eagle3.progress import Bar, Progress

# Log-probabilities kept of each token of the target's own output, to weigh divergences by.
_SCORES = 20


class ServedBackend:
    """Target and draft in vLLM, in bfloat16; one vLLM after the other holds the GPU."""

    name = "vllm"
    # Scores of some tens have eight bits: a quarter is what their rounding moves.
    tie = 0.25
    # Compiled graphs are worth their time where time is measured, and round otherwise.
    timed_rounds_otherwise = True

    def __init__(
        self, request: EvaluationRequest, model: Path, prompts: PromptSet, progress: Progress
    ) -> None:
        self.device = "cuda"
        self._request = request
        self._model = model
        self._prompts = prompts
        self._numbers = {prompt.place: number for number, prompt in enumerate(prompts.prompts)}
        self._progress = progress
        self._own_scores: dict[str, Sequence[Mapping[int, float]]] = {}

    def run(
        self, name: str, draft: Path | None, temperatures: Sequence[float], *, timed: bool
    ) -> Iterator[Run]:
        request = self._request
        longest = max(len(prompt.tokens) for prompt in self._prompts.prompts)
        options = ServingOptions(
            self._model,
            draft,
            request.speculative_tokens,
            longest + request.max_new_tokens + request.speculative_tokens + 1,
            request.tensor_parallel,
            request.gpu_memory_utilization,
            request.seed,
            eager=not timed,
            trust_remote_code=request.trust_remote_code,
            verbose=request.verbose,
        )
        with self._progress.waiting(f"{name}: starting vLLM"):
            server = Server(options)
        with server:
            # Outputs are compared with those whose scores are known, should others ever differ.
            own = None if draft else self._scored(server, name, timed)
            for temperature in temperatures:
                what = f"{name}, temperature {temperature:g}" if temperature else f"{name}, greedy"
                if own is None:
                    yield self._pass(server, what, temperature, timed)
                elif timed:
                    run = self._pass(server, what, temperature, timed)
                    yield replace(run, outputs=own, batched={1: run.outputs, **run.batched})
                else:
                    yield Run(own, Result({}, {}))

    def _scored(self, server: Server, name: str, timed: bool) -> tuple[tuple[int, ...], ...]:
        """The target's own greedy outputs; keeps what else it would have said in each place."""
        prompts = self._prompts.prompts
        with self._bar(f"{name}, greedy, with scores", len(prompts)) as bar:
            served = server.generate(
                [prompt.tokens for prompt in prompts],
                max_new_tokens=self._request.max_new_tokens,
                batch=1 if timed else len(prompts),
                scores=_SCORES,
                on_done=bar.advance,
            )
        self._own_scores = {
            prompt.place: scores for prompt, scores in zip(prompts, served.scores, strict=True)
        }
        return served.outputs

    def _pass(self, server: Server, what: str, temperature: float, timed: bool) -> Run:
        outputs: dict[str, tuple[int, ...]] = {}
        kinds: dict[str, Acceptance] = {}
        server.warm_up(self._prompts.prompts[0].tokens, 1)
        tokens, seconds = 0, 0.0
        with self._bar(what, len(self._prompts.prompts)) as bar:
            for kind, prompts in self._prompts.by_kind().items():
                # Acceptance does not ask how many run at once; speed does.
                batch = 1 if timed else len(prompts)
                served = self._generate(server, prompts, temperature, batch, bar)
                kinds[kind] = Acceptance.of_positions(served.drafts, served.accepted)
                outputs |= {p.place: o for p, o in zip(prompts, served.outputs, strict=True)}
                tokens += sum(map(len, served.outputs))
                seconds += served.seconds
        speeds = {1: tokens / seconds} if timed else {}
        batched: dict[int, tuple[tuple[int, ...], ...]] = {}
        for batch in self._request.batches if timed and not temperature else ():
            if batch > 1:
                server.warm_up(self._prompts.prompts[0].tokens, batch)
                repeated = self._repeated(batch)
                with self._bar(f"{what}, {batch} at once", len(repeated)) as bar:
                    served = self._generate(server, repeated, temperature, batch, bar)
                speeds[batch] = sum(map(len, served.outputs)) / served.seconds
                batched[batch] = served.outputs[: len(self._prompts.prompts)]
        ordered = tuple(outputs[prompt.place] for prompt in self._prompts.prompts)
        return Run(ordered, Result(kinds, speeds), batched)

    def _repeated(self, batch: int) -> list[Prompt]:
        """The prompts as often as a whole number of batches needs."""
        prompts = list(self._prompts.prompts)
        count = -(-len(prompts) // batch) * batch
        return [prompts[i % len(prompts)] for i in range(count)]

    def _bar(self, what: str, prompts: int) -> AbstractContextManager[Bar]:
        tokens = prompts * self._request.max_new_tokens
        return self._progress.bar(what, samples=prompts, tokens=tokens)

    def _generate(
        self, server: Server, prompts: Sequence[Prompt], temperature: float, batch: int, bar: Bar
    ) -> Served:
        return server.generate(
            [prompt.tokens for prompt in prompts],
            max_new_tokens=self._request.max_new_tokens,
            temperature=temperature,
            # One seed for all of them would draw the same luck for each, and the mean of that.
            seeds=[self._request.seed + self._numbers[prompt.place] for prompt in prompts],
            batch=batch,
            on_done=bar.advance,
        )

    def gap(self, prompt: Prompt, output: Sequence[int], position: int, other: int) -> float:
        scores = self._own_scores[prompt.place][position]
        # Not even among the best: no tie.
        return scores[output[position]] - scores.get(other, float("-inf"))
