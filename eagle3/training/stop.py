"""Stopping between two steps when a signal asks for it."""

import signal
from types import FrameType

from eagle3.errors import Eagle3Error


class StoppedError(Eagle3Error):
    """SIGTERM ended the run; its checkpoint is on disk."""

    exit_code = 143


class StopRequest:
    """Hears SIGTERM and Ctrl-C; a context. A second Ctrl-C ends the process at once."""

    def __init__(self) -> None:
        self.heard: signal.Signals | None = None

    def __enter__(self) -> "StopRequest":
        self._before = {
            number: signal.signal(number, self._hear) for number in (signal.SIGTERM, signal.SIGINT)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def end(self, step: int) -> None:
        """Raises what ends the process, its state after `step` steps being saved."""
        if self.heard == signal.SIGINT:
            raise KeyboardInterrupt
        raise StoppedError(
            f"stopped by SIGTERM after step {step:,}; the same command goes on from there"
        )

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.heard = signal.Signals(number)
        if self.heard == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
