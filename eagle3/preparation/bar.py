"""How far the reading of the data is, on stderr: a bar on a terminal, else a line now and then."""

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

import rich.progress
from rich.console import Console

from eagle3.progress import as_clock

_SECONDS_BETWEEN_LINES = 5.0


class ReadingBar:
    """Follows work of which only the size in bytes, or another measure, is known beforehand.

    With a `limit` it ends after that many rows, if the bytes have not ended before. The clock
    starts with the first of the work, since starting the processes takes seconds.
    """

    def __init__(self, what: str, total_bytes: int, limit: int | None = None) -> None:
        self._what = what
        self._total = total_bytes
        self._limit = limit
        self._last_line = time.monotonic()
        self._began: tuple[float, int, int] | None = None
        self.bytes_read = 0
        self._rows = 0
        self._tokens = 0
        self.draw = self._print_line

    def update(self, *, bytes_read: int, rows: int, tokens: int) -> None:
        """`bytes_read`, `rows` and `tokens` are counted from the beginning."""
        if self._limit is not None:
            bytes_read = max(bytes_read, self._total * rows // self._limit)
        self.bytes_read, self._rows, self._tokens = bytes_read, rows, tokens
        if self._began is None:
            self._began = (time.monotonic(), bytes_read, tokens)
        self.draw()

    def state(self) -> str:
        """Share done, rows, tokens/s and the time left."""
        state = f"{self.bytes_read / max(1, self._total):.0%}, {self._rows:,} rows"
        if self._began is None or self._tokens == self._began[2]:
            return state
        began, bytes_before, tokens_before = self._began
        seconds = time.monotonic() - began
        state += f", {(self._tokens - tokens_before) / seconds:,.0f} tokens/s"
        if self.bytes_read == bytes_before:
            return state
        left = seconds * (self._total - self.bytes_read) / (self.bytes_read - bytes_before)
        return f"{state}, {as_clock(left)} left"

    def _print_line(self) -> None:
        now = time.monotonic()
        if now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            print(f"{self._what}: {self.state()}", file=sys.stderr, flush=True)


@contextmanager
def reading_bar(
    total_bytes: int, what: str = "preparing", limit: int | None = None
) -> Generator[ReadingBar]:
    """Shows a ReadingBar of `what` for as long as the context lasts."""
    bar = ReadingBar(what, total_bytes, limit)
    if not sys.stderr.isatty():
        yield bar
        return
    columns = (
        rich.progress.TextColumn(what),
        rich.progress.BarColumn(),
        rich.progress.TextColumn("{task.fields[state]}"),
    )
    with rich.progress.Progress(*columns, console=Console(stderr=True)) as drawn:
        task = drawn.add_task(what, total=total_bytes, state=bar.state())
        bar.draw = lambda: drawn.update(task, completed=bar.bytes_read, state=bar.state())
        yield bar
