"""Runs a function in a process of its own and watches how much memory it and its children take."""

import contextlib
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import psutil

from eagle3.errors import EngineError

_SECONDS_BETWEEN_LOOKS = 0.25


def run_apart(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """What `function(*arguments)` returns, and the most bytes that its processes held at once.

    The bytes are resident memory, mapped files included. The processes are gone when this returns
    or raises; raises EngineError where the function did.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    most_bytes = 0
    try:
        while not ours.poll(_SECONDS_BETWEEN_LOOKS):
            most_bytes = max(most_bytes, _resident_bytes(process.pid))
        try:
            result, failure = ours.recv()
        except EOFError:
            result, failure = None, f"the process of {function.__name__} died"
    except BaseException:
        # Its own children see that it is gone, and follow.
        process.terminate()
        raise
    finally:
        process.join()
        ours.close()
    if failure is not None:
        raise EngineError(failure)
    return result, most_bytes


def _run(replies: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    # What libraries print is not the benchmark's result.
    os.dup2(2, 1)
    try:
        reply = (function(*arguments), None)
    except Exception as error:
        reply = (None, " ".join(f"{type(error).__name__}: {error}".split()))
    with contextlib.suppress(BrokenPipeError):
        replies.send(reply)


def _resident_bytes(pid: int | None) -> int:
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
    return total
