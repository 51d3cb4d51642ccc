"""A target that vLLM serves, alone or with an EAGLE-3 draft, and what vLLM counts of the draft."""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from eagle3.engine.architecture import TargetArchitecture, read_architecture
from eagle3.engine.environment import runs_on_cpu, set_environment
from eagle3.engine.model_classes import look_at_models_here
from eagle3.engine.quiet import quiet_libraries
from eagle3.engine.worker_log import one_line_cause, workers_print_to
from eagle3.errors import EngineError, InputError

if TYPE_CHECKING:
    from vllm.entrypoints.llm import LLM

# Names of vLLM's counters, v1/spec_decode/metrics.py (0.16.0).
_DRAFTS = "vllm:spec_decode_num_drafts"
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens_per_pos"
_WARM_UP_TOKENS = 16


@dataclass(frozen=True)
class ServingOptions:
    """How to serve a target.

    `draft` is an exported draft or None; `speculative_tokens` is the length of its chains.
    `max_model_len` holds prompt and answer. `eager` starts sooner and runs slower.
    `trust_remote_code` lets the target's folder bring Python code that is run. Only with `verbose`
    does what vLLM says reach the terminal.
    """

    model: Path
    draft: Path | None = None
    speculative_tokens: int = 5
    max_model_len: int = 2048
    tensor_parallel: int = 1
    gpu_memory_utilization: float = 0.8
    seed: int = 0
    eager: bool = False
    trust_remote_code: bool = False
    verbose: bool = False


@dataclass(frozen=True)
class Served:
    """What came of some prompts.

    `outputs` are the generated tokens of each. Of `drafts` drafted chains, `accepted[i]` had their
    token i accepted; both are of the draft alone and empty without one. `scores`, where asked for,
    has for each token of each output the log-probabilities of the best tokens in its place.
    """

    outputs: tuple[tuple[int, ...], ...]
    seconds: float
    drafts: int
    accepted: tuple[int, ...]
    scores: tuple[tuple[Mapping[int, float], ...], ...] = ()


class Told(Protocol):
    """Is told what came to an end."""

    def __call__(self, *, samples: int, tokens: int) -> None: ...


class Server:
    """Starts vLLM on construction; a context manager that stops it.

    vLLM runs in a process of its own, so a script that builds a Server needs the usual
    `if __name__ == "__main__"`. Construction raises InputError for what vLLM refuses and
    EngineError where it fails to start.
    """

    def __init__(self, options: ServingOptions) -> None:
        self.options = options
        architecture = read_architecture(options.model)
        # Of this server alone: its sockets, and the log of its processes.
        self._folder = Path(tempfile.mkdtemp(prefix="eagle3-serving-"))
        self._log = self._folder / "workers.log"
        set_environment(
            architecture,
            options.tensor_parallel,
            options.max_model_len,
            sockets=self._folder,
            verbose=options.verbose,
        )
        self._llm: LLM | None = None
        try:
            self._llm = _start(options, architecture, self._log)
        except BaseException:
            self.close()
            raise

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
        """Continues the prompts, `batch` at a time, each to the target's own end of an answer.

        Above temperature 0, each prompt draws from its own of the `seeds`. `scores` asks for so
        many log-probabilities a token. `on_done` is told of each batch how many prompts and new
        tokens it had. Raises EngineError.
        """
        from vllm.sampling_params import SamplingParams

        assert self._llm is not None, "the server is closed"
        drawn = seeds if temperature else [None] * len(prompts)
        sampling = [
            SamplingParams(
                temperature=temperature,
                max_tokens=max_new_tokens,
                seed=seed,
                logprobs=scores or None,
                detokenize=False,
            )
            for _, seed in zip(prompts, drawn, strict=True)
        ]
        before = self._counters()
        began = time.perf_counter()
        try:
            completions: list[Any] = []
            for first in range(0, len(prompts), batch):
                ended = self._llm.generate(
                    [{"prompt_token_ids": list(p)} for p in prompts[first : first + batch]],
                    sampling[first : first + batch],
                    use_tqdm=False,
                )
                completions += [output.outputs[0] for output in ended]
                if on_done is not None:
                    tokens = sum(len(output.outputs[0].token_ids) for output in ended)
                    on_done(samples=len(ended), tokens=tokens)
        except Exception as error:
            raise EngineError(f"the target failed: {one_line_cause(error, self._log)}") from error
        seconds = time.perf_counter() - began
        drafts, *accepted = (now - then for now, then in zip(self._counters(), before, strict=True))
        return Served(
            tuple(tuple(completion.token_ids) for completion in completions),
            seconds,
            drafts,
            tuple(accepted),
            tuple(_scores(completion) for completion in completions) if scores else (),
        )

    def warm_up(self, prompt: Sequence[int], batch: int) -> None:
        """Runs what a first request would otherwise wait for."""
        self.generate([prompt] * batch, max_new_tokens=_WARM_UP_TOKENS, batch=batch)

    def _counters(self) -> tuple[int, ...]:
        """Drafted chains, then those whose token i was accepted, all since vLLM was imported."""
        positions = self.options.speculative_tokens if self.options.draft else 0
        drafts, accepted = 0, [0] * positions
        if not positions:
            return (drafts,)
        assert self._llm is not None
        metrics: list[Any] = self._llm.get_metrics()
        for metric in metrics:
            if metric.name == _DRAFTS:
                drafts += metric.value
            elif metric.name == _ACCEPTED:
                accepted = [a + b for a, b in zip(accepted, metric.values, strict=True)]
        return (drafts, *accepted)

    def close(self) -> None:
        """Stops vLLM; a second call does nothing."""
        if self._llm is not None:
            self._llm.llm_engine.engine_core.shutdown()
            self._llm = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start(options: ServingOptions, architecture: TargetArchitecture, log: Path) -> "LLM":
    try:
        with contextlib.ExitStack() as quiet:
            if not options.verbose:
                quiet.enter_context(quiet_libraries())
                # Bars of loading and of capturing graphs would bury what the command says.
                quiet.enter_context(workers_print_to(log))
            from vllm.entrypoints.llm import LLM

            look_at_models_here()
            return LLM(str(options.model), **vllm_options(options, architecture))
    except ValueError as error:
        raise InputError(
            f"vLLM refuses to serve {options.model.name}: {one_line_cause(error)}"
        ) from error
    except Exception as error:
        raise EngineError(
            f"the target {options.model.name} did not start (-v shows its log): "
            f"{one_line_cause(error, log)}"
        ) from error


def vllm_options(options: ServingOptions, architecture: TargetArchitecture) -> dict[str, Any]:
    """What vLLM's `LLM` is given beside the target's folder."""
    chosen: dict[str, Any] = {
        "dtype": "bfloat16",
        "seed": options.seed,
        "max_model_len": options.max_model_len,
        "tensor_parallel_size": options.tensor_parallel,
        "gpu_memory_utilization": options.gpu_memory_utilization,
        "enforce_eager": options.eager or runs_on_cpu(),
        "trust_remote_code": options.trust_remote_code,
        # The same prompts run pass after pass: from the second on, they would cost nothing.
        "enable_prefix_caching": False,
        "disable_log_stats": False,
    }
    if options.draft is not None:
        chosen["speculative_config"] = {
            "method": "eagle3",
            "model": str(options.draft),
            "num_speculative_tokens": options.speculative_tokens,
        }
    if architecture.modality is not None:
        chosen["limit_mm_per_prompt"] = {architecture.modality: 0}
    return chosen


def _scores(completion: Any) -> tuple[dict[int, float], ...]:
    return tuple(
        {token: scored.logprob for token, scored in place.items()} for place in completion.logprobs
    )
