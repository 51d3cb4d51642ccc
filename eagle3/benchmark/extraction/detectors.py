"""What detectors cost: how much CPU time they take, and an extraction without them."""

import time
from collections.abc import Sequence
from threading import Lock

import torch

from eagle3.extraction.run import Detectors
from eagle3.extraction.states import Fault


class TimedDetectors:
    """`detectors`, called from many threads; `seconds` is the CPU time that they took."""

    def __init__(self, detectors: Detectors) -> None:
        self.seconds = 0.0
        self._detectors = detectors
        self._lock = Lock()

    def __call__(
        self,
        token_ids: Sequence[Sequence[int]],
        states: Sequence[torch.Tensor],
        capture_points: tuple[int, ...],
    ) -> list[Fault | None]:
        # A checker's torch takes no thread but this one.
        began = time.thread_time()
        faults = self._detectors(token_ids, states, capture_points)
        with self._lock:
            self.seconds += time.thread_time() - began
        return faults


def no_detectors(
    token_ids: Sequence[Sequence[int]],
    states: Sequence[torch.Tensor],
    capture_points: tuple[int, ...],
) -> list[Fault | None]:
    """Finds nothing."""
    return [None] * len(token_ids)
