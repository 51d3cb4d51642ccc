"""How captured rows come from the target's device into host memory: the one place where the GPU and
the CPU differ."""

from collections.abc import Callable
from typing import Protocol

import torch

# Returns once a copy is there.
Wait = Callable[[], None]


class Transfer(Protocol):
    """Copies rows to buffers that it has made."""

    def new_buffer(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Host memory for bf16 values."""

    def copy(self, rows: torch.Tensor, buffer: torch.Tensor) -> Wait:
        """Begins to copy `rows` of the target's device; what it returns waits for the end."""


def transfer_from(device: torch.device) -> Transfer:
    """The transfer for a target on `device`."""
    return HostTransfer() if device.type == "cpu" else CudaTransfer(device)


class HostTransfer:
    """The target's device is the host: a plain copy."""

    def new_buffer(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.bfloat16)

    def copy(self, rows: torch.Tensor, buffer: torch.Tensor) -> Wait:
        buffer.copy_(rows)
        return _nothing_to_wait_for


def _nothing_to_wait_for() -> None:
    pass


class CudaTransfer:
    """Copies on a stream of its own, so that the target's next step runs meanwhile."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def new_buffer(self, shape: tuple[int, ...]) -> torch.Tensor:
        # Only from pinned memory does a copy run beside the program, and at the bus's full speed.
        return torch.empty(shape, dtype=torch.bfloat16, pin_memory=True)

    def copy(self, rows: torch.Tensor, buffer: torch.Tensor) -> Wait:
        # The rows exist once what the target has queued up to here has run.
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        # A blocking event lets a waiting thread sleep; others spin on a core.
        copied = torch.cuda.Event(blocking=True)
        with torch.cuda.stream(self._stream):
            buffer.copy_(rows, non_blocking=True)
            copied.record(self._stream)
        # The allocator must not hand the rows' memory to the next step before they are copied.
        rows.record_stream(self._stream)
        return copied.synchronize
