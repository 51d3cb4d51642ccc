"""Child processes that are started in order, watched, and stopped in the opposite order."""

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.remote.errors import ServiceError

_PR_SET_PDEATHSIG = 1
_LOG_TAIL_LINES = 5
_LOG_TAIL_BYTES = 10_000
_LOG_BYTES = 64_000_000
_POLL_S = 0.05
_STOP_S = 10.0
_TERM_S = 3.0

_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    """Runs in the child: a service that was killed outright leaves nothing behind."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass(frozen=True)
class Command:
    """How one child is started. stop_signal asks it to end in good order."""

    name: str
    words: Sequence[str | Path]
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_signal: signal.Signals = signal.SIGTERM


class Processes:
    """The children of a service; each writes to a log file of its own in `logs`."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, tuple[Command, subprocess.Popen[bytes]]] = {}
        logs.mkdir(parents=True, exist_ok=True)

    def start(self, command: Command) -> None:
        """Starts a child in a session of its own: a terminal's Ctrl-C reaches the service only."""
        with self.log(command.name).open("ab") as log:
            child = subprocess.Popen(
                [str(word) for word in command.words],
                env=dict(command.environment),
                # Where Bazel started the service is gone after a `bazel clean`.
                cwd=self._logs,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self._running[command.name] = (command, child)

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def pid(self, name: str) -> int:
        return self._running[name][1].pid

    def take_ended(self) -> list[tuple[Command, int]]:
        """Returns, once, the children that have ended since the last call, with exit codes."""
        ended = [
            (command, child.returncode)
            for command, child in self._running.values()
            if child.poll() is not None
        ]
        for command, _ in ended:
            del self._running[command.name]
        return ended

    def require_running(self) -> None:
        """Raises ServiceError with the last lines of the log where a child has ended."""
        for command, code in self.take_ended():
            raise ServiceError(
                f"{command.name} ended with {code}; {self.log(command.name)} ends with: "
                f"{self.tail(command.name)}"
            )

    def tail(self, name: str) -> str:
        with self.log(name).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return " | ".join(line.strip() for line in lines[-_LOG_TAIL_LINES:] if line.strip())

    def trim_logs(self) -> None:
        """Empties logs that have grown large; what one said before is beside it, as .log.old."""
        for log in self._logs.glob("*.log"):
            if log.stat().st_size > _LOG_BYTES:
                shutil.copyfile(log, log.with_suffix(".log.old"))
                # The child goes on appending to the file that it has open.
                os.truncate(log, 0)

    def send_signal(self, name: str, number: signal.Signals) -> None:
        """Sends a signal to a child, unless it has ended."""
        if name in self._running:
            self._running[name][1].send_signal(number)

    def has_children(self, name: str) -> bool:
        """Whether a child runs programs of its own, by whichever of its threads."""
        if name not in self._running:
            return False
        threads = Path(f"/proc/{self.pid(name)}/task").glob("*/children")
        return any(map(_read_of_process, threads))

    def drain(self, names: Iterable[str], seconds: float) -> None:
        """Asks these children to end at once, and gives them time to finish what they do."""
        ending = [self._running.pop(name) for name in names if name in self._running]
        for command, child in ending:
            child.send_signal(command.stop_signal)
        deadline = time.monotonic() + seconds
        for _, child in ending:
            _wait_or_kill(child, max(0.0, deadline - time.monotonic()))

    def stop(self) -> None:
        """Ends every child, the youngest first; kills one that does not follow."""
        for command, child in reversed(self._running.values()):
            child.send_signal(command.stop_signal)
            _wait_or_kill(child, _STOP_S)
        self._running.clear()


def _read_of_process(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        # The thread, or the process, has ended in between.
        return ""


def _wait_or_kill(child: subprocess.Popen[bytes], seconds: float) -> None:
    """Waits for a child that was asked to end; a worker ends its actions only on SIGTERM."""
    for escalation, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, _TERM_S)):
        try:
            child.wait(patience)
        except subprocess.TimeoutExpired:
            child.send_signal(escalation)
        else:
            return
    child.wait()


def wait_until(
    ready: Callable[[], bool], processes: Processes, *, what: str, seconds: float
) -> None:
    """Polls ready() until it is true. ServiceError where a child ends or time runs out first."""
    deadline = time.monotonic() + seconds
    while not ready():
        processes.require_running()
        if time.monotonic() > deadline:
            raise ServiceError(f"{what} did not come up within {seconds:.0f} s")
        time.sleep(_POLL_S)
