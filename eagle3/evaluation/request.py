"""What is asked of an evaluation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class EvaluationRequest:
    """What to evaluate, and how.

    `model` None is the target that the draft names. `shuffled` is a draft of the same shape that
    was trained on shuffled states, `beside` other drafts by name, of the same capture points.
    `batches` are numbers of prompts at once, for vLLM's speeds; not `timed`, no speed is told.
    """

    draft: Path
    data: Path
    model: Path | None = None
    shuffled: Path | None = None
    beside: Mapping[str, Path] = field(default_factory=dict)
    backend: Literal["auto", "own", "vllm"] = "auto"
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
    verbose: bool = False
