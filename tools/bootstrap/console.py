"""What the user sees of the set-up: one line a step on stderr, one line an error."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.bootstrap.errors import BootstrapError

MEGABYTE = 1_000_000
_TERMINAL_INTERVAL_S = 0.5
_LOG_INTERVAL_S = 5.0


def say(text: str) -> None:
    """Prints one line of progress to stderr; stdout belongs to results."""
    print(f"[eagle3 setup] {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def download(text: str, folder: Path, total_bytes: int) -> Iterator[None]:
    """Says what is fetched and, while it runs, how many MB of it have reached folder."""
    total = megabytes(total_bytes)
    say(f"fetching {text}, {total}")
    started = time.monotonic()
    stop = threading.Event()
    terminal = sys.stderr.isatty()
    interval_s = _TERMINAL_INTERVAL_S if terminal else _LOG_INTERVAL_S

    def watch() -> None:
        while not stop.wait(interval_s):
            line = f"[eagle3 setup]   {megabytes(min(_size(folder), total_bytes))} of {total}"
            print(f"\r{line}" if terminal else line, end="" if terminal else "\n", file=sys.stderr)
            sys.stderr.flush()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
        if terminal:
            print("\r\033[K", end="", file=sys.stderr)
    say(f"fetched {text}, {total}, in {time.monotonic() - started:.0f} s")


def megabytes(size_bytes: int) -> str:
    return f"{size_bytes / MEGABYTE:.1f} MB"


def _size(folder: Path) -> int:
    total = 0
    # Not rglob: before Python 3.13 it ends at a folder that goes meanwhile, as pip's own do.
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # a partial file may just have got its final name
                total += os.stat(os.path.join(parent, name)).st_size
    return total


def run(command: Callable[[], None]) -> int:
    """Runs a command file's body; returns the exit code, its errors told in one line each."""
    # What is set up holds nothing private, and must not differ with the caller's umask.
    os.umask(0o022)
    # A caller's "kill" must clean up like Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        command()
    except BootstrapError as error:
        say(f"ERROR: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; nothing half-made was kept, run the same command again")
        return 130
    except OSError as error:
        say(f"ERROR: {_explain(error)}")
        return 1
    return 0


def _explain(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full{where}: free some space, or set EAGLE3_CACHE to a roomier disk"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"cannot write{where}: set EAGLE3_CACHE to a folder that you can write"
    return f"{error.strerror or error}{where}"
