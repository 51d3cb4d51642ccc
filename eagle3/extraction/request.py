"""What the user asks of an extraction."""

from dataclasses import dataclass
from pathlib import Path

from eagle3.engine.capture_points import LayerConvention


@dataclass(frozen=True)
class ExtractionRequest:
    """One field an option of the command; all paths are absolute.

    `layers` None: the default capture points. `max_model_len` None: 2,048 tokens, or what the
    target can take if that is less. `limit` None: all lines of the data. `verbose`: the target's
    own log goes to stderr.
    """

    model: Path
    data: Path
    out: Path
    layers: tuple[int, ...] | None
    layer_convention: LayerConvention
    tensor_parallel: int
    max_model_len: int | None
    max_tokens_per_step: int
    gpu_memory_utilization: float
    limit: int | None
    truncate: bool
    seed: int
    verbose: bool
