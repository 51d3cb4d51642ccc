"""A target in transformers, one sequence at a time, that gives scores and fused states."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from eagle3.errors import InputError


class Target:
    """The checkpoint in float32: in bfloat16, the same token scored alone and in a chain differs.

    Raises InputError where transformers does not know the architecture.
    """

    def __init__(
        self, folder: Path, capture_points: Sequence[int], device: torch.device | str = "cpu"
    ) -> None:
        try:
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            layers = model.model.layers
        except (ValueError, KeyError, OSError, AttributeError, ImportError) as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"transformers cannot run the target in {folder} ({reason}): take --backend vllm"
            ) from error
        self._model: Any = model.to(device).eval()
        self.device = torch.device(device)
        self._captured: dict[int, torch.Tensor] = {}
        self._capture_points = tuple(capture_points)
        # Capture point k is what layer k - 1 gives out, before any norm.
        for point in self._capture_points:
            layers[point - 1].register_forward_hook(self._keep(point))
        self.start()

    def _keep(self, point: int) -> Callable[[Any, Any, Any], None]:
        def keep(_module: Any, _inputs: Any, output: Any) -> None:
            hidden_1TH = output[0] if isinstance(output, tuple) else output
            self._captured[point] = hidden_1TH[0]

        return keep

    def start(self) -> None:
        """Forgets the sequence."""
        self._cache = DynamicCache(config=self._model.config)

    def read(self, tokens: Sequence[int], scores: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Reads `tokens` after what it has read before.

        Returns the scores of what follows the last `scores` of them, [S, V], and the states of all
        of them at the capture points, [T, 3, H].
        """
        logits_1SV = self._model(
            input_ids=torch.tensor([tokens], device=self.device),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=scores,
        ).logits
        states_T3H = torch.stack([self._captured[p] for p in self._capture_points], dim=1)
        return logits_1SV[0], states_T3H

    def forget(self, length: int) -> None:
        """Keeps only the first `length` tokens that it has read."""
        self._cache.crop(length)
