"""A fixed number of host buffers that captured rows pass through on their way to disk."""

import queue
from collections.abc import Callable

import torch

# Large enough that a write costs much more than its call, and small enough that writes begin early
# and end soon after the last copy. A power of two: torch rounds pinned memory up to one.
_BUFFER_BYTES = 16 * 1024 * 1024
_FEWEST_BUFFERS = 2


class Ring:
    """Buffers [rows_per_buffer, L, H] of at most `ring_bytes` together.

    The buffer that was given back last is taken first, so that a ring that is never full touches
    little of its memory.
    """

    def __init__(
        self,
        row_shape: tuple[int, int],
        most_rows: int,
        ring_bytes: int,
        new_buffer: Callable[[tuple[int, ...]], torch.Tensor],
    ) -> None:
        points, hidden_size = row_shape
        row_bytes = points * hidden_size * torch.bfloat16.itemsize
        most_bytes = min(_BUFFER_BYTES, ring_bytes // _FEWEST_BUFFERS)
        self.rows_per_buffer = max(1, min(most_rows, most_bytes // row_bytes))
        count = max(_FEWEST_BUFFERS, ring_bytes // (self.rows_per_buffer * row_bytes))
        self._free: queue.LifoQueue[torch.Tensor] = queue.LifoQueue()
        for _ in range(count):
            self._free.put(new_buffer((self.rows_per_buffer, points, hidden_size)))

    def take(self) -> torch.Tensor:
        """A free buffer; waits until there is one. Nothing is ever dropped."""
        return self._free.get()

    def give_back(self, buffer: torch.Tensor) -> None:
        """Lets `buffer`, which was taken, be taken again."""
        self._free.put(buffer)
