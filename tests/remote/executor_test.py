"""A GPU host lends its devices. A script plays its nvidia-smi: no GPU is needed, nor used."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.service import PATIENCE_S, Gate, Service, located, running, wait_for

_SMI = """\
#!/bin/sh
printf '%s, NVIDIA H200, 9.0\\n' 0 1 2 3 4 5 6 7
"""
# More than this test has patience for: where it matters, the end must come before.
_DRAIN_S = 3 * PATIENCE_S
_PRINT_DEVICES = ("/bin/sh", "-c", "echo $CUDA_VISIBLE_DEVICES")


class Executor:
    """A host of eight devices, some of which it lends."""

    def __init__(self, folder: Path, server: str, slots: str) -> None:
        smi = folder / "bin/nvidia-smi"
        smi.parent.mkdir(parents=True)
        smi.write_text(_SMI)
        smi.chmod(0o755)
        self.state = folder / "state"
        self._output = folder / "output"
        words = [located("executor"), f"--server={server.replace('grpc://', 'http://')}"]
        words += [f"--state={self.state}", f"--gpu-slots={slots}", "--store-gb=1"]
        words += [f"--drain-s={_DRAIN_S}"]
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                words, stderr=output, env=os.environ | {"PATH": f"{smi.parent}:/usr/bin:/bin"}
            )

    def wait_until_ready(self, service: Service) -> None:
        """Returns when it is healthy, and the service knows its workers."""

        def ready() -> bool:
            assert self.process.poll() is None, self.said()
            if self.check():
                return False
            return service.run("/bin/true", **{"Pool": "gpu", "gpu-count": "1"}).returncode == 0

        wait_for(ready, self.said)

    def said(self) -> str:
        logs = sorted((self.state / "logs").glob("*.log"))
        return "\n".join([self._output.read_text(), *(log.read_text()[-1000:] for log in logs)])

    def check(self) -> int:
        """Exit code of the health probe."""
        words = [located("executor"), "--check", f"--state={self.state}"]
        return subprocess.run(words, check=False, capture_output=True).returncode


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running() as started:
        yield started


@pytest.fixture(scope="module")
def executor(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    """Lends one device to tests that ask for one, two to tests that ask for two."""
    # Its sockets' paths must be short, too.
    started = Executor(service.state.parent / "host", service.endpoint, slots="1,2")
    started.wait_until_ready(service)
    yield started
    if started.process.poll() is None:
        started.process.terminate()
        started.process.wait()


@pytest.mark.parametrize(("count", "devices"), [("1", "0"), ("2", "1,2")])
def test_a_test_has_the_devices_that_it_asks_for(
    count: str, devices: str, service: Service, executor: Executor
) -> None:
    done = service.run(*_PRINT_DEVICES, **{"Pool": "gpu", "gpu": "nvidia", "gpu-count": count})
    assert done.stdout.strip() == devices, done.stderr + executor.said()


@pytest.mark.parametrize(
    "wanted", [{"gpu": "nvidia-h200"}, {"gpu-sm": "80"}, {"gpu-sm": "90"}], ids=str
)
def test_model_and_capability_up_to_its_own_are_offered(
    wanted: dict[str, str], service: Service, executor: Executor
) -> None:
    done = service.run("/bin/true", **({"Pool": "gpu", "gpu-count": "1"} | wanted))
    assert done.returncode == 0, done.stderr + executor.said()


def test_what_the_host_lacks_is_named(service: Service, executor: Executor) -> None:
    lacking = {"gpu": "nvidia-b200", "gpu-sm": "100", "gpu-count": "3"}
    # Each is refused after 10 s, so all of them wait at once.
    probes = [
        service.start("/bin/true", **({"Pool": "gpu", "gpu-count": "1"} | {name: value}))
        for name, value in lacking.items()
    ]
    for (name, value), probe in zip(lacking.items(), probes, strict=True):
        _, complaint = probe.communicate()
        assert f"{name}={value}" in complaint, executor.said()
        assert "pools with workers: cpu, gpu" in complaint


def test_two_tests_share_no_device(service: Service, executor: Executor) -> None:
    script = "date +%s.%N; sleep 3; date +%s.%N"
    properties = {"Pool": "gpu", "gpu-count": "1"}
    both = [service.start("/bin/sh", "-c", script, **properties) for _ in range(2)]
    spans = sorted(tuple(map(float, one.communicate()[0].split())) for one in both)
    assert spans[0][1] <= spans[1][0], executor.said()


def test_an_idle_host_drains_at_once(service: Service, executor: Executor) -> None:
    """No test after this one has the executor."""
    executor.process.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    assert executor.process.wait(PATIENCE_S) == 0, executor.said()
    assert time.monotonic() - begin < 15
    assert executor.check() == 1


def test_tests_that_run_when_the_host_drains_finish(service: Service, tmp_path: Path) -> None:
    """Around five seconds after it began: then workers tell the service that they live."""
    host = Executor(service.state.parent / "large", service.endpoint, slots=",".join("1" * 8))
    host.wait_until_ready(service)
    gate = Gate(tmp_path)
    properties = {"Pool": "gpu", "gpu-count": "1"}
    running = [
        service.start(*gate.command(f"sleep {4.9 + 0.05 * i:.2f}; echo finished"), **properties)
        for i in range(8)
    ]
    gate.wait_for(8, host.said)
    gate.open()
    host.process.send_signal(signal.SIGTERM)
    for test in running:
        output, complaint = test.communicate()
        assert output.strip() == "finished", complaint + host.said()
    assert host.process.wait(PATIENCE_S) == 0, host.said()
    done = service.run("/bin/true", **properties)
    assert "no worker offers" in done.stderr
