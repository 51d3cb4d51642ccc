"""What a command says while it works, on stderr.

On a terminal a bar; in a log file a sober line every few seconds.
"""

import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

import rich.progress
from rich.console import Console

_SECONDS_BETWEEN_LINES = 5.0
_SECONDS_BETWEEN_WAITING_LINES = 15.0


def as_clock(seconds: float) -> str:
    """Minutes and seconds, with hours where there are some: 0:05, 12:34, 30:00:07."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d}"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


class Progress:
    """Says on stderr what a command is doing."""

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    @contextmanager
    def waiting(self, what: str) -> Generator[None]:
        """Says that `what` began, that it still goes on, and how long it took."""
        self.say(f"{what} ...")
        began = time.monotonic()
        with self.reminding(what):
            yield
        self.say(f"{what}: done in {time.monotonic() - began:.1f} s")

    @contextmanager
    def reminding(self, what: str) -> Generator[None]:
        """Says now and then that `what` still goes on; nothing where it does not take long."""
        began = time.monotonic()
        done = threading.Event()

        def remind() -> None:
            while not done.wait(_SECONDS_BETWEEN_WAITING_LINES):
                self.say(f"{what}: {time.monotonic() - began:.0f} s")

        reminder = threading.Thread(target=remind, daemon=True)
        reminder.start()
        try:
            yield
        finally:
            done.set()
            reminder.join()

    @contextmanager
    def bar(self, what: str, *, samples: int, tokens: int) -> Generator["Bar"]:
        """Follows work of a known size."""
        bar = Bar(what, samples, tokens)
        if not sys.stderr.isatty():
            yield bar
            return
        columns = (
            rich.progress.TextColumn(what),
            rich.progress.BarColumn(),
            rich.progress.TextColumn("{task.fields[state]}"),
        )
        with rich.progress.Progress(*columns, console=Console(stderr=True)) as drawn:
            task = drawn.add_task(what, total=tokens, state=bar.state())
            bar.draw = lambda: drawn.update(task, completed=bar.tokens_done, state=bar.state())
            yield bar


class Bar:
    """Counts samples and tokens that are done, and tells the rate and the time left."""

    def __init__(self, what: str, samples: int, tokens: int) -> None:
        self._what = what
        self._samples = samples
        self._tokens = tokens
        self._began = time.monotonic()
        self._last_line = self._began
        self._samples_done = 0
        self.tokens_done = 0
        self.draw = self._print_line

    def advance(self, *, samples: int, tokens: int) -> None:
        self._samples_done += samples
        self.tokens_done += tokens
        self.draw()

    def state(self) -> str:
        """Samples and tokens done, tokens/s and the time left."""
        state = (
            f"{self._samples_done:,}/{self._samples:,} samples, "
            f"{self.tokens_done:,}/{self._tokens:,} tokens"
        )
        if not self.tokens_done:
            return state
        rate = self.tokens_done / (time.monotonic() - self._began)
        # Answers may be shorter than the tokens that they were given room for.
        left = 0 if self._is_done else (self._tokens - self.tokens_done) / rate
        return f"{state}, {rate:,.0f} tokens/s, {as_clock(left)} left"

    @property
    def _is_done(self) -> bool:
        return self._samples_done >= self._samples

    def _print_line(self) -> None:
        now = time.monotonic()
        if now - self._last_line < _SECONDS_BETWEEN_LINES and not self._is_done:
            return
        self._last_line = now
        print(f"{self._what}: {self.state()}", file=sys.stderr, flush=True)


class BytesDone:
    """Says every few seconds, and at the end, how far `what` is, how fast, and the time left."""

    def __init__(self, progress: Progress, what: str) -> None:
        self._progress = progress
        self._what = what
        self._began = self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last < _SECONDS_BETWEEN_LINES and done < total:
            return
        self._last = now
        rate = done / max(now - self._began, 1e-9)
        self._progress.say(
            f"{self._what}: {done / 1e9:,.1f}/{total / 1e9:,.1f} GB, {rate / 1e9:.2f} GB/s, "
            f"{as_clock((total - done) / rate)} left"
        )
