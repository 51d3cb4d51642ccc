"""What the user asks of an extraction."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from eagle3.engine.capture_points import LayerConvention
from eagle3.engine.options import (
    DEFAULT_RING_BYTES,
    DEFAULT_STEP_TIMEOUT_S,
    EngineOptions,
    default_tokens_per_step,
)
from eagle3.store.part import Part
from eagle3.store.row_format import BFLOAT16, FLOAT8

OnBad = Literal["fail", "quarantine"]


@dataclass(frozen=True)
class ExtractionRequest:
    """One field an option of the command; all paths are absolute.

    `layers` None: the default capture points. `max_model_len` None: 2,048 tokens, or what the
    target can take if that is less. `limit` None: all lines of the data. `trust_remote_code`: code
    in the target's folder may be run. `verbose`: the target's own log goes to stderr. `part` is
    the share of the work that this run does, `shard_bytes` the size of a shard, `on_bad` what to
    do with states that no healthy target gives, and `command` the command line, for the manifest.
    `preflight`: the checks before the load decide whether there is one. `prefetch`: the weights are
    fetched into the page cache while the target starts. `fp8_states`: states are stored as 8-bit
    floats. `disk_budget`: bytes of shards that may lie in the folder at a time; then the run waits
    until training has removed some. `ring_bytes` and `step_timeout_s` are those of the engine.
    """

    model: Path
    data: Path
    out: Path
    layers: tuple[int, ...] | None = None
    layer_convention: LayerConvention = "after-layer"
    tensor_parallel: int = 1
    max_model_len: int | None = None
    max_tokens_per_step: int = field(default_factory=default_tokens_per_step)
    gpu_memory_utilization: float = 0.8
    limit: int | None = None
    truncate: bool = False
    seed: int = 0
    trust_remote_code: bool = False
    verbose: bool = False
    part: Part = field(default_factory=Part)
    shard_bytes: int = 1024**3
    on_bad: OnBad = "fail"
    command: str = ""
    preflight: bool = True
    prefetch: bool = False
    fp8_states: bool = False
    disk_budget: int | None = None
    ring_bytes: int = DEFAULT_RING_BYTES
    step_timeout_s: float = DEFAULT_STEP_TIMEOUT_S

    def engine_options(self, capture_points: tuple[int, ...], max_model_len: int) -> EngineOptions:
        """How the engine is to run the target."""
        return EngineOptions(
            model=self.model,
            capture_points=capture_points,
            tensor_parallel=self.tensor_parallel,
            max_model_len=max_model_len,
            max_tokens_per_step=self.max_tokens_per_step,
            gpu_memory_utilization=self.gpu_memory_utilization,
            seed=self.seed,
            trust_remote_code=self.trust_remote_code,
            verbose=self.verbose,
            ring_bytes=self.ring_bytes,
            step_timeout_s=self.step_timeout_s,
            states_dtype=FLOAT8 if self.fp8_states else BFLOAT16,
        )
