"""What is asked of an evaluation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from eagle3.preparation.request import ReasoningPolicy


@dataclass(frozen=True)
class EvaluationRequest:
    """What to evaluate, and how.

    `model` None is the target that the draft names. `shuffled` is a draft of the same shape that
    was trained on shuffled states, `beside` other drafts by name, of the same capture points.
    `batches` are numbers of prompts at once, for vLLM's speeds; not `timed`, no speed is told.
    With `reasoning` "keep" the questions of a file ask the target to think, else they ask it not
    to; those of a folder stay as they were prepared, and it must be None. `preflight`: before vLLM
    loads the target, checks decide whether it does.
    """

    draft: Path
    data: Path
    model: Path | None = None
    shuffled: Path | None = None
    beside: Mapping[str, Path] = field(default_factory=dict)
    backend: Literal["auto", "own", "vllm"] = "auto"
    reasoning: ReasoningPolicy | None = None
    limit: int = 16
    max_new_tokens: int = 64
    speculative_tokens: int = 5
    temperature: float = 1.0
    timed: bool = True
    batches: tuple[int, ...] = (1, 8, 32)
    seed: int = 0
    tensor_parallel: int = 1
    gpu_memory_utilization: float = 0.8
    trust_remote_code: bool = False
    preflight: bool = True
    verbose: bool = False
