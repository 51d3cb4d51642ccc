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
_SECONDS_TO_END = 60.0


def run_apart(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """What `function(*arguments)` returns, and the most bytes that its processes held at once.

    The bytes are resident memory, mapped files included. The processes, and with them what they
    held of a GPU, are gone when this returns; raises EngineError where the function raised, or its
    processes outlive it.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    family = _Family(process.pid)
    try:
        while not ours.poll(_SECONDS_BETWEEN_LOOKS):
            family.look()
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
    family.wait_for_end()
    return result, family.most_bytes


def cpu_seconds() -> float:
    """CPU time that this process and those that descend from it have taken, but for ended ones."""
    this = psutil.Process()
    times = (member.cpu_times() for member in [this, *this.children(recursive=True)])
    return sum(spent.user + spent.system for spent in times)


def _run(replies: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    # What libraries print is not the benchmark's result.
    os.dup2(2, 1)
    try:
        reply = (function(*arguments), None)
    except Exception as error:
        reply = (None, " ".join(f"{type(error).__name__}: {error}".split()))
    with contextlib.suppress(BrokenPipeError):
        replies.send(reply)


class _Family:
    """A process and all that descend from it."""

    def __init__(self, pid: int | None) -> None:
        self._members = {psutil.Process(pid)}
        self.most_bytes = 0

    def look(self) -> None:
        """Takes in new members, and the memory of all."""
        for member in tuple(self._members):
            with contextlib.suppress(psutil.NoSuchProcess):
                self._members.update(member.children(recursive=True))
        self.most_bytes = max(self.most_bytes, sum(map(_resident_bytes, self._members)))

    def wait_for_end(self) -> None:
        _, alive = psutil.wait_procs(self._members, timeout=_SECONDS_TO_END)
        if alive:
            raise EngineError(f"process {alive[0].pid} is still there; end it before another run")


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.NoSuchProcess:
        return 0
