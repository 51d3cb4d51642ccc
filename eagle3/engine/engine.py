"""A running target that gives the hidden states of token sequences."""

import contextlib
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch

from eagle3.engine.architecture import TargetArchitecture, read_architecture
from eagle3.engine.capture_points import after_layer_ids
from eagle3.engine.environment import runs_on_cpu, set_environment
from eagle3.engine.worker_log import one_line_cause, workers_print_to
from eagle3.errors import EngineError, InputError

if TYPE_CHECKING:
    from speculators.data_generation import VllmHiddenStatesGenerator

# Tokens of one block of the KV cache on the CPU, where vLLM's attention wants a multiple of 32.
_CPU_BLOCK_SIZE = 128
# Prompts in one step: speculators.data_generation.vllm_hidden_states_generator.MAX_NUM_SEQS
_MAX_PROMPTS_PER_STEP = 32

_FOLDER_PREFIX = "eagle3-engine-"
# sockaddr_un.sun_path, less the zero byte at its end; see unix(7).
_LONGEST_SOCKET_PATH = 107
# "/" + prefix + 8 random letters + "/" + the UUID by which vLLM names a socket.
_LONGEST_SOCKET_NAME = 1 + len(_FOLDER_PREFIX) + 8 + 1 + 36


@dataclass(frozen=True)
class EngineOptions:
    """How to run a target.

    `max_model_len` is the longest prompt in tokens, and a longer prompt than
    `max_tokens_per_step` runs in several steps. `gpu_memory_utilization` has no effect on a CPU.
    `trust_remote_code` lets the target's folder bring Python code that is run.
    Only with `verbose` does what the libraries and the workers say reach the terminal.
    """

    model: Path
    capture_points: tuple[int, ...]
    tensor_parallel: int = 1
    max_model_len: int = 2048
    max_tokens_per_step: int = 2048
    gpu_memory_utilization: float = 0.8
    seed: int = 0
    trust_remote_code: bool = False
    verbose: bool = False


class Engine:
    """Starts the target on construction; a context manager that stops it.

    The workers are processes of their own, so a script that builds an Engine needs the usual
    `if __name__ == "__main__"`. One thread at a time may use an Engine. Construction raises
    InputError for options or a target that cannot work, EngineError where the target fails to
    start.
    """

    architecture: TargetArchitecture

    def __init__(self, options: EngineOptions) -> None:
        self.options = options
        self.architecture = read_architecture(options.model)
        _check_options(options, self.architecture)
        self._folder = _engine_folder()
        set_environment(
            self.architecture,
            options.tensor_parallel,
            options.max_model_len,
            sockets=self._folder,
            verbose=options.verbose,
        )
        self._generator: VllmHiddenStatesGenerator | None = None
        try:
            self._generator = self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> "VllmHiddenStatesGenerator":
        with contextlib.ExitStack() as quiet:
            if not self.options.verbose:
                quiet.enter_context(_quiet_libraries())
                quiet.enter_context(workers_print_to(self._worker_log))
            return self._start_generator()

    def _start_generator(self) -> "VllmHiddenStatesGenerator":
        from speculators.data_generation import VllmHiddenStatesGenerator

        options = self.options
        try:
            return VllmHiddenStatesGenerator(
                str(options.model),
                after_layer_ids(options.capture_points),
                # vLLM keeps room for one token after the longest prompt.
                max_model_len=options.max_model_len + 1,
                tensor_parallel_size=options.tensor_parallel,
                gpu_memory_utilization=options.gpu_memory_utilization,
                max_num_batched_tokens=options.max_tokens_per_step,
                **_vllm_options(options, self.architecture),
            )
        except ValueError as error:
            raise InputError(
                f"vLLM refuses the target {options.model.name}: {one_line_cause(error)}"
            ) from error
        except Exception as error:
            raise EngineError(
                f"the target {options.model.name} did not start: "
                f"{one_line_cause(error, self._worker_log)}"
            ) from error

    @property
    def _worker_log(self) -> Path:
        return self._folder / "workers.log"

    def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """Runs the prompts and returns their hidden_states_TLH, in the order of the prompts.

        Each is bfloat16 on the CPU; L is in the order of `options.capture_points`. Pass as many
        prompts as the states of which fit into memory: they are packed into full steps. A prompt
        that cannot run raises InputError by its index before any is run. EngineError where the
        target fails; after one with a single rank, the next call can still be good.
        """
        if self._generator is None:
            raise EngineError("the engine is closed")
        _check_prompts(token_ids, self.architecture.vocab_size, self.options.max_model_len)
        if not token_ids:
            return []
        try:
            results = self._generator.generate([list(prompt_T) for prompt_T in token_ids])
        except Exception as error:
            cause = self._dead_worker() or one_line_cause(error)
            raise EngineError(f"the target failed: {cause}") from error
        return [torch.stack(result["hidden_states"], dim=1) for result in results]

    def _dead_worker(self) -> str | None:
        assert self._generator is not None
        executor = self._generator.executor
        if not executor.is_failed:
            return None
        codes = sorted({code for worker in executor.workers if (code := worker.proc.exitcode)})
        return (
            f"a worker process died (exit code {', '.join(map(str, codes)) or 'unknown'}): "
            "perhaps the machine ran out of memory; take fewer tokens a step"
        )

    def close(self) -> None:
        """Stops the workers and waits until they are gone; a second call does nothing."""
        if self._generator is not None:
            self._generator.shutdown()
            self._generator = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _engine_folder() -> Path:
    """A folder of this engine alone, for its sockets and its workers' log.

    A socket's path holds 107 bytes, and the user's temporary folder may be longer.
    """
    usual = tempfile.gettempdir()
    fits = len(os.fsencode(usual)) + _LONGEST_SOCKET_NAME <= _LONGEST_SOCKET_PATH
    return Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX, dir=usual if fits else "/tmp"))


def _vllm_options(options: EngineOptions, architecture: TargetArchitecture) -> dict[str, Any]:
    model_options: dict[str, Any] = {
        "seed": options.seed,
        "trust_remote_code": options.trust_remote_code,
        # Stored states are bfloat16, and float16 changes the residual stream of DeepSeek.
        "dtype": "bfloat16",
    }
    if architecture.modality is not None:
        model_options["limit_mm_per_prompt"] = {architecture.modality: 0}
    cache_options: dict[str, Any] = {}
    compilation_options: dict[str, Any] = {}
    if runs_on_cpu():
        # One prompt is unfinished at most, and each may leave a block partly empty.
        tokens = options.max_tokens_per_step + options.max_model_len
        blocks = -(-tokens // _CPU_BLOCK_SIZE) + _MAX_PROMPTS_PER_STEP + 1
        cache_options = {"block_size": _CPU_BLOCK_SIZE, "num_gpu_blocks_override": blocks}
        if architecture.latent_attention:
            # vLLM 0.16.0's CPU rotary kernel is wrong for the 3-D queries of these models.
            compilation_options["custom_ops"] = ["all", "-rotary_embedding"]
    return {
        "model_options": model_options,
        "cache_options": cache_options,
        "compilation_options": compilation_options,
    }


@contextlib.contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Silences what the libraries say on import and of the configuration, and then for good."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    for name in ("speculators", "transformers", "torch.utils.cpp_extension"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Imported here, since it sets its logger's level on import.
        import vllm.logger  # noqa: F401

        logging.getLogger("vllm").setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            # One of them configures the root logger, which is not theirs, for INFO.
            root.setLevel(level)
            root.handlers = handlers


def _check_options(options: EngineOptions, architecture: TargetArchitecture) -> None:
    points = options.capture_points
    if not points or len(set(points)) < len(points):
        raise InputError(f"capture points must be given, each once, not {points}")
    for point in points:
        if not 0 <= point <= architecture.num_layers:
            raise InputError(
                f"capture point {point} is out of range: this target has 0 to "
                f"{architecture.num_layers}"
            )
    for name in ("tensor_parallel", "max_model_len", "max_tokens_per_step"):
        if getattr(options, name) < 1:
            raise InputError(f"{name} must be at least 1, not {getattr(options, name)}")
    if architecture.modality is not None and not options.trust_remote_code:
        # vllm/model_executor/models/kimi_k25.py (0.16.0) trusts the image processor's code
        # whatever its ModelConfig says, so what vLLM does not ask must be asked here.
        raise InputError(
            f"for this target vLLM runs the Python code in {options.model}: read it, then give "
            "--trust-remote-code (trust_remote_code)"
        )
    positions = architecture.max_position_embeddings
    if positions is not None and options.max_model_len > positions:
        raise InputError(
            f"max_model_len {options.max_model_len:,} is more than the {positions:,} positions of "
            "the target; lower it"
        )


def _check_prompts(token_ids: Sequence[Sequence[int]], vocab_size: int, max_model_len: int) -> None:
    for index, prompt_T in enumerate(token_ids):
        if not prompt_T:
            raise InputError(f"prompt {index} has no tokens")
        if len(prompt_T) > max_model_len:
            raise InputError(
                f"prompt {index} has {len(prompt_T):,} tokens, more than the {max_model_len:,} of "
                "max_model_len; raise it or cut the prompt with its loss mask"
            )
        if min(prompt_T) < 0 or max(prompt_T) >= vocab_size:
            raise InputError(
                f"prompt {index} has a token id outside the vocabulary of {vocab_size:,}"
            )
