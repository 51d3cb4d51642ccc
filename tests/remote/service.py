"""Starts the service, and what else stands beside it, and asks it to run commands."""

import contextlib
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from runfiles import Runfiles

# Everything ends far sooner; only a machine that is busy with others gets near.
PATIENCE_S = 240


def located(program: str) -> str:
    runfiles = Runfiles.Create()
    found = runfiles.Rlocation(f"eagle3_training/tools/remote/{program}") if runfiles else None
    assert found, "run this test with Bazel"
    return found


def wait_for(condition: Callable[[], object], complaint: Callable[[], str]) -> None:
    """Returns when `condition` holds; fails with `complaint` where it does not come to hold."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.1)


class Gate:
    """Where commands say that they have begun, and wait until they may go on."""

    def __init__(self, folder: Path) -> None:
        self._begun = folder / "begun"
        self._open = folder / "open"

    def command(self, then: str = "true") -> tuple[str, ...]:
        """Goes through the gate, and does `then` behind it."""
        wait = f"until [ -e '{self._open}' ]; do sleep 0.05; done"
        return ("/bin/sh", "-c", f"echo begun >> '{self._begun}'; {wait}; {then}")

    def wait_for(self, count: int, complaint: Callable[[], str]) -> None:
        """Returns when so many commands have begun."""
        wait_for(lambda: self._begun.exists() and self._commands() >= count, complaint)

    def _commands(self) -> int:
        return self._begun.read_text().count("\n")

    def open(self) -> None:
        self._open.touch()


class Service:
    """A running service and what it prints."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.output = state.with_suffix(".out")
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                [
                    located("service"),
                    f"--state={state}",
                    "--slots=1",
                    "--gpu-slots=",
                    "--store-gb=1",
                ],
                stderr=output,
            )

    def wait_until_ready(self) -> None:
        self.endpoint = self._wait_for(r"ready after .* on (grpc://\S+)")

    def _wait_for(self, pattern: str) -> str:
        def found() -> re.Match[str] | None:
            assert self.process.poll() is None, self.logs()
            return re.search(pattern, self.output.read_text())

        wait_for(found, self.logs)
        said = found()
        assert said is not None
        return said[1]

    def logs(self) -> str:
        files = sorted((self.state / "logs").glob("*.log"))
        parts = [f"{file.name}: {file.read_text()[-1000:]}" for file in files]
        return "\n".join([self.output.read_text(), *parts])

    def children(self) -> list[int]:
        pid = self.process.pid
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]

    def worker(self) -> int:
        (found,) = (child for child in self.children() if "buildbox-worker" in _command_line(child))
        return found

    def run(self, *words: str, **properties: str) -> subprocess.CompletedProcess[str]:
        """What the probe says of a command run with these platform properties."""
        return subprocess.run(
            self._probe(words, properties), capture_output=True, text=True, check=False
        )

    def start(self, *words: str, **properties: str) -> subprocess.Popen[str]:
        """The same, running."""
        return subprocess.Popen(
            self._probe(words, properties),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _probe(self, words: Sequence[str], properties: Mapping[str, str]) -> list[str]:
        options = [f"--property={name}={value}" for name, value in properties.items()]
        server = f"--server={self.endpoint}"
        return [located("probe"), server, f"--timeout-s={PATIENCE_S}", *options, "--", *words]


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        # It has ended in between.
        return ""


@contextlib.contextmanager
def running() -> Iterator[Service]:
    """A service that is stopped in good order, with all that it started."""
    # A socket's path may have 107 characters; the folders that Bazel gives to a test have more.
    with tempfile.TemporaryDirectory(prefix="eagle3 ", dir="/tmp") as folder:
        service = Service(Path(folder, "state"))
        try:
            service.wait_until_ready()
            yield service
            children = service.children()
        finally:
            service.process.send_signal(signal.SIGINT)
            code = service.process.wait(PATIENCE_S)
        assert code == 0, service.logs()
        assert not [child for child in children if Path(f"/proc/{child}").exists()]
