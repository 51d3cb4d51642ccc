"""A service starts, runs commands, names a missing pool, outlives a worker, and stops."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.remote.service import Gate, Service, located, running


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with running() as started:
        yield started


def test_a_command_runs_on_a_worker(service: Service) -> None:
    done = service.run("/bin/sh", "-c", "echo here; env | wc -l")
    assert done.stdout.splitlines()[0] == "here", done.stderr + service.logs()
    assert int(done.stdout.splitlines()[1]) <= 4, "the worker's environment leaks"
    assert "ran on worker cpu" in done.stderr


def test_a_command_is_found_by_its_name(service: Service) -> None:
    done = service.run("ls", "-a")
    assert done.stdout.split() == [".", ".."], done.stderr


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


def test_a_command_waits_for_a_busy_pool(service: Service, tmp_path: Path) -> None:
    """Longer than what a missing pool is given, which is 12 s at most."""
    gate = Gate(tmp_path)
    busy = service.start(*gate.command())
    gate.wait_for(1, service.logs)
    behind = service.start("/bin/true")
    time.sleep(16)
    assert behind.poll() is None, service.logs()
    gate.open()
    assert (busy.wait(), behind.wait()) == (0, 0), service.logs()


def test_a_command_that_nobody_waits_for_frees_its_worker(service: Service, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    waiting = service.start(*gate.command())
    gate.wait_for(1, service.logs)
    waiting.kill()
    waiting.wait()
    begin = time.monotonic()
    # Nobody has opened the gate.
    assert service.run("/bin/true").returncode == 0, service.logs()
    assert time.monotonic() - begin < 45


def test_another_worker_finishes_what_a_killed_one_began(service: Service, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    command = service.start(*gate.command())
    gate.wait_for(1, service.logs)
    os.kill(service.worker(), signal.SIGKILL)
    gate.wait_for(2, service.logs)
    gate.open()
    assert command.wait() == 0, service.logs()
    assert "a new one takes its place" in service.output.read_text()


def test_a_test_that_ran_elsewhere_is_told_by_the_table_of_jobs(
    service: Service, tmp_path: Path
) -> None:
    execution = {"strategy": "remote"}
    events = [
        {"id": {"started": {}}, "started": {"uuid": "of another service"}},
        {
            "id": {"testResult": {"label": "//a:far"}},
            "testResult": {"status": "PASSED", "executionInfo": execution},
        },
    ]
    log = tmp_path / "events.json"
    log.write_text("".join(map(json.dumps, events)))
    words = [located("audit"), f"--state={service.state}", log]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == "remote, and no job of the service: 1 of 1 passed\n", done.stderr
    assert "1 tests are no finished job of the service, such as //a:far" in done.stderr


def test_a_service_that_is_gone_is_told(tmp_path: Path) -> None:
    """A machine that broke down leaves PostgreSQL's note of its port."""
    note = tmp_path / "state/database/postmaster.pid"
    note.parent.mkdir(parents=True)
    note.write_text("1\n/x\n1\n1\n")
    log = tmp_path / "events.json"
    log.write_text(json.dumps({"id": {"started": {}}, "started": {"uuid": "x"}}))
    words = [located("audit"), f"--state={note.parent.parent}", log]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ERROR: the service's database does not answer: connection failed" in done.stderr


def test_a_second_service_in_the_same_folder_is_refused(service: Service) -> None:
    second = subprocess.run(
        [located("service"), f"--state={service.state}"], capture_output=True, text=True
    )
    assert second.returncode == 1
    assert f"a service runs in {service.state} already" in second.stderr
