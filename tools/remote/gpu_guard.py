"""pytest plugin of gpu_py_test: ends the run where the machine lacks what the test asks for.

A skipped GPU test looks like a passed one. This one fails, in a line that says what is missing.
"""

import os
import shutil
from collections.abc import Mapping

import pytest
import torch

SHARED_MEMORY = "/dev/shm"
# NCCL and vLLM's ranks meet in shared memory; containers get 64 MB of it unless told otherwise.
MIN_SHARED_BYTES = 1 << 30


def missing(environment: Mapping[str, str]) -> str | None:
    """What this machine lacks of EAGLE3_TEST_GPUS and EAGLE3_TEST_MIN_SM, or None."""
    gpus = int(environment["EAGLE3_TEST_GPUS"])
    min_sm = int(environment["EAGLE3_TEST_MIN_SM"])
    found = [
        torch.cuda.get_device_capability(device) for device in range(torch.cuda.device_count())
    ]
    levels = [10 * major + minor for major, minor in found]
    if sum(level >= min_sm for level in levels) < gpus:
        visible = environment.get("CUDA_VISIBLE_DEVICES", "not set")
        seen = ", ".join(f"sm_{level}" for level in levels) or "none"
        return (
            f"this test needs {gpus} GPU(s) of sm_{min_sm} or newer and this machine shows: {seen} "
            f"(CUDA_VISIBLE_DEVICES: {visible}); run it on a GPU executor, see docs/remote.md"
        )
    shared_bytes = shutil.disk_usage(SHARED_MEMORY).total
    if gpus > 1 and shared_bytes < MIN_SHARED_BYTES:
        return (
            f"this test needs {MIN_SHARED_BYTES >> 20} MB of {SHARED_MEMORY} and there are "
            f"{shared_bytes >> 20}: give the executor's container more, see docs/remote.md"
        )
    return None


def pytest_sessionstart() -> None:
    if complaint := missing(os.environ):
        pytest.exit(complaint, returncode=1)
