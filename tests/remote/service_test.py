"""A service starts, runs commands, names a missing pool, outlives a worker, and stops."""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
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
                [located("service"), f"--state={state}", "--slots=1", "--store-gb=1"],
                stderr=output,
            )
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
        options = [f"--property={name}={value}" for name, value in properties.items()]
        return subprocess.run(
            [located("probe"), f"--server={self.endpoint}", *options, "--", *words],
            capture_output=True,
            text=True,
        )


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    # A socket's path may have 107 characters; the folders that Bazel gives to a test have more.
    with tempfile.TemporaryDirectory(prefix="eagle3-", dir="/tmp") as folder:
        running = Service(Path(folder, "state"))
        yield running
        children = running.children()
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(60) == 0, running.logs()
        assert not [child for child in children if Path(f"/proc/{child}").exists()]


def test_a_command_runs_on_a_worker(service: Service) -> None:
    done = service.run("/bin/sh", "-c", "echo here; env | wc -l")
    assert done.stdout.splitlines()[0] == "here", done.stderr + service.logs()
    assert int(done.stdout.splitlines()[1]) <= 4, "the worker's environment leaks"
    assert "ran on worker cpu" in done.stderr


def test_a_failure_is_a_failure(service: Service) -> None:
    done = service.run("/bin/sh", "-c", "exit 7")
    assert done.returncode == 1
    assert "the command ended with 7" in done.stderr


def test_a_missing_pool_is_named_in_time(service: Service) -> None:
    begin = time.monotonic()
    done = service.run("/bin/true", **{"Pool": "gpu", "gpu-count": "2"})
    assert time.monotonic() - begin < 30
    expected = "no worker offers OSFamily=linux, Pool=gpu, gpu-count=2; pools with workers: cpu"
    assert expected in done.stderr


def test_an_unknown_property_is_refused(service: Service) -> None:
    done = service.run("/bin/true", colour="red")
    assert "Unregistered platform property [colour=" in done.stderr


def test_a_command_waits_for_a_busy_pool(service: Service) -> None:
    """Longer than what a missing pool is given."""
    words = ["--server=" + service.endpoint, "--timeout-s=120", "--", "/bin/sleep", "16"]
    commands = [subprocess.Popen([located("probe"), *words]) for _ in range(2)]
    assert [command.wait() for command in commands] == [0, 0]


def test_a_command_that_nobody_waits_for_frees_its_worker(service: Service) -> None:
    waiting = subprocess.Popen(
        [
            located("probe"),
            f"--server={service.endpoint}",
            "--timeout-s=120",
            "--",
            "/bin/sleep",
            "99",
        ]
    )
    time.sleep(4)
    waiting.kill()
    waiting.wait()
    begin = time.monotonic()
    assert service.run("/bin/true").returncode == 0, service.logs()
    assert time.monotonic() - begin < 45


def test_another_worker_finishes_what_a_killed_one_began(service: Service) -> None:
    command = subprocess.Popen(
        [
            located("probe"),
            f"--server={service.endpoint}",
            "--timeout-s=120",
            "--",
            "/bin/sleep",
            "3",
        ]
    )
    time.sleep(2)
    os.kill(service.worker(), signal.SIGKILL)
    assert command.wait() == 0, service.logs()
    assert "a new one takes its place" in service.output.read_text()


def test_a_second_service_in_the_same_folder_is_refused(service: Service) -> None:
    second = subprocess.run(
        [located("service"), f"--state={service.state}"], capture_output=True, text=True
    )
    assert second.returncode == 1
    assert f"a service runs in {service.state} already" in second.stderr
