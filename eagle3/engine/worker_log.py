"""Keeps what worker processes print out of the user's terminal, and finds in it why one failed."""

import contextlib
import multiprocessing.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pydantic import ValidationError

_EXCEPTION = re.compile(r"(?:^|\s)((?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt)\b: .*)")
_REPLY = re.compile(r"Worker failed with error '(.*)', please check", re.DOTALL)
_LONGEST_CAUSE = 300


@contextlib.contextmanager
def workers_print_to(path: Path) -> Iterator[None]:
    """Processes spawned inside write their stdout and stderr to `path`, for all their life.

    Gloo, libnuma and progress bars write to the descriptors themselves, so no logger setting
    silences them. The parent's descriptors are exchanged only while a process is created.
    """
    spawn = multiprocessing.util.spawnv_passfds

    def spawn_quietly(*args: Any) -> int:
        with path.open("ab") as log, _descriptors_to(log.fileno()):
            return spawn(*args)

    with patch.object(multiprocessing.util, "spawnv_passfds", spawn_quietly):
        yield


@contextlib.contextmanager
def _descriptors_to(target: int) -> Iterator[None]:
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [(descriptor, os.dup(descriptor)) for descriptor in (1, 2)]
    try:
        for descriptor, _ in saved:
            os.dup2(target, descriptor)
        yield
    finally:
        for descriptor, copy in saved:
            os.dup2(copy, descriptor)
            os.close(copy)


def one_line_cause(error: BaseException, log: Path | None = None) -> str:
    """Why the target failed: what the worker replied, else the last exception in its log."""
    if reply := _REPLY.search(str(error)):
        cause = reply.group(1)
    elif isinstance(error, ValidationError):
        cause = error.errors()[0]["msg"].removeprefix("Value error, ")
    elif log is not None and log.exists() and (logged := _last_exception(log)):
        cause = logged
    else:
        cause = f"{type(error).__name__}: {error}"
    cause = " ".join(cause.split())
    return cause if len(cause) <= _LONGEST_CAUSE else f"{cause[:_LONGEST_CAUSE]}..."


def _last_exception(log: Path) -> str | None:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in reversed(lines):
        if found := _EXCEPTION.search(line):
            return found.group(1)
    return None
