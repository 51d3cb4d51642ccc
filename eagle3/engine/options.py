"""How to run a target."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from eagle3.engine.architecture import TargetArchitecture
from eagle3.engine.environment import runs_on_cpu
from eagle3.errors import InputError
from eagle3.store.row_format import BFLOAT16, width

DEFAULT_RING_BYTES = 1024**3
MOST_RING_BYTES = 2 * 1024**3
DEFAULT_STEP_TIMEOUT_S = 1800.0
# Of the sizes measured (docs/extract.md), larger ones gain nothing, and 16,384 loses on both.
CPU_TOKENS_PER_STEP = 2048
GPU_TOKENS_PER_STEP = 8192


def default_tokens_per_step() -> int:
    """Tokens of a step on what the installed vLLM runs on."""
    return CPU_TOKENS_PER_STEP if runs_on_cpu() else GPU_TOKENS_PER_STEP


@dataclass(frozen=True)
class EngineOptions:
    """How to run a target.

    `max_model_len` is the longest prompt in tokens, and a longer prompt than
    `max_tokens_per_step` runs in several steps. `gpu_memory_utilization` has no effect on a CPU.
    `trust_remote_code` lets the target's folder bring Python code that is run.
    Only with `verbose` does what the libraries and the workers say reach the terminal.

    Captured rows pass through `ring_bytes` of host memory on each of `writing_ranks`
    tensor-parallel ranks (all of them where it is None), each with `writer_threads` threads that
    write, encoded as `states_dtype` says (eagle3/store/encoding.py). A step that takes longer than
    `step_timeout_s` seconds is an error. `dummy_weights` runs a target without weights, with random
    ones in their place. With `compute_dtype` float32 the target computes with more digits than
    states are stored with, so that tests can ask for equal bytes.
    """

    model: Path
    capture_points: tuple[int, ...]
    tensor_parallel: int = 1
    max_model_len: int = 2048
    max_tokens_per_step: int = field(default_factory=default_tokens_per_step)
    gpu_memory_utilization: float = 0.8
    seed: int = 0
    trust_remote_code: bool = False
    verbose: bool = False
    ring_bytes: int = DEFAULT_RING_BYTES
    writing_ranks: int | None = None
    writer_threads: int = 4
    step_timeout_s: float = DEFAULT_STEP_TIMEOUT_S
    dummy_weights: bool = False
    states_dtype: str = BFLOAT16
    compute_dtype: Literal["bfloat16", "float32"] = "bfloat16"


def check_options(options: EngineOptions, architecture: TargetArchitecture) -> None:
    """Raises InputError for options that cannot work for the target."""
    points = options.capture_points
    if not points or len(set(points)) < len(points):
        raise InputError(f"capture points must be given, each once, not {points}")
    for point in points:
        if not 0 <= point <= architecture.num_layers:
            raise InputError(
                f"capture point {point} is out of range: this target has 0 to "
                f"{architecture.num_layers}"
            )
    for name in ("tensor_parallel", "max_model_len", "max_tokens_per_step", "writer_threads"):
        if getattr(options, name) < 1:
            raise InputError(f"{name} must be at least 1, not {getattr(options, name)}")
    if not 1 <= (options.writing_ranks or 1) <= options.tensor_parallel:
        raise InputError(f"writing_ranks must be 1 to {options.tensor_parallel}")
    row_bytes = len(points) * width(options.states_dtype, architecture.hidden_size)
    if not 2 * row_bytes <= options.ring_bytes <= MOST_RING_BYTES:
        raise InputError(
            f"the ring must have {2 * row_bytes:,} (two rows) to {MOST_RING_BYTES:,} bytes, not "
            f"{options.ring_bytes:,}"
        )
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
