"""What the user asks of a generation."""

from dataclasses import dataclass

from eagle3.generation.dialogue import DegeneratePolicy
from eagle3.generation.sampling import SamplingOptions
from eagle3.preparation.request import PreparationRequest


@dataclass(frozen=True)
class GenerationRequest:
    """How the target makes the conversations of `preparation`; lengths are in tokens.

    With `conversations` it writes so many itself, questions too, of `turns` answers each at most,
    and stops earlier where they hold `tokens`; None: it answers those of the data. `preflight`: the
    checks before the load decide whether there is one.
    """

    preparation: PreparationRequest
    sampling: SamplingOptions
    max_tokens: int
    on_degenerate: DegeneratePolicy
    conversations: int | None = None
    tokens: int | None = None
    turns: int = 1
    tensor_parallel: int = 1
    gpu_memory_utilization: float = 0.8
    preflight: bool = True
    verbose: bool = False
