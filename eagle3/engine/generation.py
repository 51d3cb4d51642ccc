"""A running target that continues token sequences: its own answers, as token ids.

vLLM's offline engine is stepped in this process, one step a call. So which prompts run together
follows from the order of the calls alone, and the same calls give the same tokens on the same
stack and hardware. The engine never sees text: no tokenizer is opened and nothing is decoded.
"""

import contextlib
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from eagle3.engine.architecture import TargetArchitecture, read_architecture
from eagle3.engine.environment import runs_on_cpu, set_environment
from eagle3.engine.model_classes import look_at_models_here
from eagle3.engine.quiet import process_prints_to, quiet_libraries
from eagle3.engine.worker_log import one_line_cause, workers_print_to
from eagle3.errors import EngineError, InputError

if TYPE_CHECKING:
    from vllm.v1.engine.llm_engine import LLMEngine

_FOLDER_PREFIX = "eagle3-generation-"
# Sequences that run at once. A GPU decodes hundreds of them in the time of one.
_SEQUENCES_ON_CPU = 32
_SEQUENCES_ON_GPU = 512
# A step that takes in prompts replays no CUDA graph but launches kernel after kernel. So prompts
# wait until this share of the sequences has ended, and come in together.
_SHARE_FREE = 1 / 16
# Tokens of one step, more where a single prompt is longer.
_TOKENS_PER_STEP = 8192
# Blocks of the KV cache on the CPU, where vLLM's attention wants a multiple of 32 tokens.
_CPU_BLOCK_SIZE = 32


@dataclass(frozen=True)
class GenerationOptions:
    """How to run a target that generates.

    `max_model_len` is the longest sequence in tokens, prompt and answer together.
    `gpu_memory_utilization` has no effect on a CPU. `trust_remote_code` lets the target's folder
    bring Python code that is run. Only with `verbose` does what the libraries say reach the
    terminal.
    """

    model: Path
    max_model_len: int
    tensor_parallel: int = 1
    gpu_memory_utilization: float = 0.8
    trust_remote_code: bool = False
    verbose: bool = False


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen, in vLLM's terms; generation ends with one of `stop_ids`.

    `temperature` 0 takes the most probable token. `top_k` 0 considers all tokens.
    """

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    stop_ids: tuple[int, ...]


@dataclass(frozen=True)
class Generated:
    """What the target generated for the prompt submitted as `key`.

    `ids` end with one of the stop ids, except where `is_cut`: then the length was used up.
    """

    key: str
    ids: tuple[int, ...]
    is_cut: bool


class GenerationEngine:
    """Starts the target on construction; a context manager that stops it.

    One thread at a time may use it. Construction raises InputError for options or a target that
    cannot work, EngineError where the target fails to start.
    """

    def __init__(self, options: GenerationOptions) -> None:
        self._options = options
        self._architecture = read_architecture(options.model)
        _check_options(options, self._architecture)
        self.sequences_at_once = _SEQUENCES_ON_CPU if runs_on_cpu() else _SEQUENCES_ON_GPU
        self._folder = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX))
        self._engine: LLMEngine | None = None
        self._waiting: deque[tuple[str, list[int], Any]] = deque()
        self._running_sequences = 0
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        options, log = self._options, self._folder / "workers.log"
        set_environment(
            self._architecture,
            options.tensor_parallel,
            options.max_model_len,
            sockets=self._folder,
            verbose=options.verbose,
        )
        # Steps that another process took would meet whatever had arrived by then.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        try:
            with contextlib.ExitStack() as quiet:
                if not options.verbose:
                    quiet.enter_context(quiet_libraries())
                    quiet.enter_context(process_prints_to(log))
                    quiet.enter_context(workers_print_to(log))
                from vllm.engine.arg_utils import EngineArgs
                from vllm.v1.engine.llm_engine import LLMEngine

                look_at_models_here()
                arguments = EngineArgs(**self._arguments())
                self._engine = LLMEngine.from_engine_args(arguments)
                self._engine.collective_rpc("draw_at_once")
        except ValueError as error:
            raise InputError(
                f"vLLM refuses the target {options.model.name}: {one_line_cause(error)}"
            ) from error
        except Exception as error:
            raise EngineError(
                f"the target {options.model.name} did not start: {one_line_cause(error, log)}"
            ) from error

    def _arguments(self) -> dict[str, Any]:
        options, architecture = self._options, self._architecture
        arguments: dict[str, Any] = {
            "model": str(options.model),
            "skip_tokenizer_init": True,
            # The sampling is told with each prompt, by whoever asks.
            "generation_config": "vllm",
            "dtype": "bfloat16",
            "max_model_len": options.max_model_len,
            "max_num_seqs": self.sequences_at_once,
            # A prompt that ran in several steps would draw from its seed in each of them, which
            # moves its answer on a GPU, and fails on a CPU.
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": max(_TOKENS_PER_STEP, options.max_model_len),
            "tensor_parallel_size": options.tensor_parallel,
            "gpu_memory_utilization": options.gpu_memory_utilization,
            "trust_remote_code": options.trust_remote_code,
            # Scheduling ahead of the results would again depend on what had arrived.
            "async_scheduling": False,
            "worker_extension_cls": "eagle3.engine.seeded_draws.SeededDraws",
            "disable_log_stats": True,
            "use_tqdm_on_load": False,
        }
        if architecture.modality is not None:
            arguments["limit_mm_per_prompt"] = {architecture.modality: 0}
        # Nothing is compiled, which would want a C++ compiler on the machine. Decoding replays
        # CUDA graphs, without which a step of small kernels takes as long to launch as to run.
        compilation: dict[str, Any] = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
        if runs_on_cpu():
            compilation["cudagraph_mode"] = "NONE"
            arguments["block_size"] = _CPU_BLOCK_SIZE
            arguments["enforce_eager"] = True
            if architecture.latent_attention:
                # vLLM 0.16.0's CPU rotary kernel is wrong for the 3-D queries of these models.
                compilation["custom_ops"] = ["all", "-rotary_embedding"]
        return {**arguments, "compilation_config": compilation}

    def submit(
        self, key: str, prompt_T: Sequence[int], sampling: Sampling, *, max_tokens: int, seed: int
    ) -> None:
        """Lets the target continue `prompt_T` by at most `max_tokens`; `step` tells by `key`.

        `seed` chooses among the possible continuations. Prompt and `max_tokens` together must fit
        `max_model_len`.
        """
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        params = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            seed=seed,
            max_tokens=max_tokens,
            stop_token_ids=list(sampling.stop_ids),
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            skip_clone=True,
        )
        self._waiting.append((key, list(prompt_T), params))

    def step(self) -> list[Generated]:
        """Runs the target once; returns what has ended. EngineError where the target fails."""
        try:
            self._take_in()
            outputs: list[Any] = self._running.step()
        except Exception as error:
            raise EngineError(f"the target failed: {one_line_cause(error)}") from error
        self._running_sequences -= len(outputs)
        return [
            Generated(
                output.request_id,
                tuple(output.outputs[0].token_ids),
                output.outputs[0].finish_reason == "length",
            )
            for output in outputs
        ]

    def _take_in(self) -> None:
        free = self.sequences_at_once - self._running_sequences
        if free < _SHARE_FREE * self.sequences_at_once:
            return
        for _ in range(min(free, len(self._waiting))):
            key, prompt, params = self._waiting.popleft()
            self._running.add_request(key, {"prompt_token_ids": prompt}, params)
            self._running_sequences += 1

    @property
    def _running(self) -> "LLMEngine":
        if self._engine is None:
            raise EngineError("the engine is closed")
        return self._engine

    def close(self) -> None:
        """Stops the target and lets go of its memory; a second call does nothing."""
        if self._engine is not None:
            self._engine.engine_core.shutdown()
            self._engine = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_options(options: GenerationOptions, architecture: TargetArchitecture) -> None:
    positions = architecture.max_position_embeddings
    if positions is not None and options.max_model_len > positions:
        raise InputError(
            f"--max-model-len {options.max_model_len:,} is more than the {positions:,} positions "
            "of the target; lower it"
        )
    if architecture.modality is not None and not options.trust_remote_code:
        # vllm/model_executor/models/kimi_k25.py (0.16.0) trusts the image processor's code
        # whatever its ModelConfig says, so what vLLM does not ask must be asked here.
        raise InputError(
            f"for this target vLLM runs the Python code in {options.model}: read it, then give "
            "--trust-remote-code"
        )
