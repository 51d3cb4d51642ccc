"""Starts the service, and what else stands beside it, and asks it to run commands."""

import contextlib
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from runfiles import Runfiles

_START_S = 90


def located(program: str) -> str:
    runfiles = Runfiles.Create()
    found = runfiles.Rlocation(f"eagle3_training/tools/remote/{program}") if runfiles else None
    assert found, "run this test with Bazel"
    return found


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
        deadline = time.monotonic() + _START_S
        while not (found := re.search(pattern, self.output.read_text())):
            assert self.process.poll() is None, self.logs()
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.1)
        return found[1]

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
        (found,) = (
            child
            for child in self.children()
            if b"buildbox-worker" in Path(f"/proc/{child}/cmdline").read_bytes()
        )
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
        return [located("probe"), server, "--timeout-s=120", *options, "--", *words]


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
            code = service.process.wait(60)
        assert code == 0, service.logs()
        assert not [child for child in children if Path(f"/proc/{child}").exists()]
