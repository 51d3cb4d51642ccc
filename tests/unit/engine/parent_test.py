"""A worker whose command was killed does not stay behind."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from eagle3.engine.parent import end_with_parent

# As a worker that waits for a message that will not come.
_PARENT = """
import multiprocessing, time
from tests.unit.engine.parent_test import wait_for_ever

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=wait_for_ever, args=({watching},))
    child.start()
    print(child.pid, flush=True)
    time.sleep(600)
"""


def wait_for_ever(watching: bool) -> None:
    if watching:
        end_with_parent()
    threading.Event().wait()


@pytest.mark.parametrize("watching", [True, False])
def test_it_ends_with_the_process_that_started_it(watching: bool) -> None:
    process = subprocess.Popen(
        [sys.executable, "-s", "-c", _PARENT.format(watching=watching)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    child = psutil.Process(int(process.stdout.readline()))
    # Until it has begun to watch, its main thread is alone.
    deadline = time.monotonic() + 100
    while watching and child.num_threads() < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    try:
        _, left = psutil.wait_procs([child], timeout=100 if watching else 3)
        assert bool(left) is not watching
    finally:
        if child.is_running():
            child.kill()


def test_a_process_without_such_a_parent_is_left_alone() -> None:
    assert multiprocessing.parent_process() is None
    before = threading.active_count()
    end_with_parent()
    assert threading.active_count() == before
