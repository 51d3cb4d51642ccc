"""The reference run, at the depth that the machine holds; on the CPU with a tiny target."""

import json
import os
import shutil
import subprocess
import sys

from tests.gpu.reference_target import FULL_DEPTH

# Of the test's executor; none on the CPU.
GPUS = int(os.environ.get("EAGLE3_TEST_GPUS", "0"))
# 57 GB of weights on each of two H200, 74 GB on each of eight.
LAYERS = {0: 8, 2: 12, 8: FULL_DEPTH}[GPUS]
RANKS = GPUS or 2
ON_GPUS = ("--tokens", "131072", "--lengths", "512,2048")
ON_THE_CPU = (
    *("--cpu", "--tokens", "2048", "--lengths", "64,256"),
    *("--max-tokens-per-step", "256", "--repeat", "1"),
)
# A disk is slower than two GPUs; what is measured is the road to it.
SHARED_MEMORY = "/dev/shm"
SHARED_BYTES = 20 * 10**9
# Of most rows; a router's near ties, rounded in another way, send a few to other experts.
NEAR = 0.997
MOST_SECONDS_TO_AN_ERROR = 60


def test_every_row_is_written_once_by_equal_shares_and_a_killed_run_goes_on() -> None:
    command = [
        *(sys.executable, "-s", "-m", "tests.gpu.reference_run"),
        *("--gpus", str(RANKS), "--layers", str(LAYERS), "--json"),
        *(ON_GPUS if GPUS else ON_THE_CPU),
    ]
    if GPUS and shutil.disk_usage(SHARED_MEMORY).free > SHARED_BYTES:
        command += ["--out", SHARED_MEMORY]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    assert done.returncode == 0
    # The figures of a GPU are worth their place in the test's log.
    print(done.stdout)
    figures = json.loads(done.stdout)
    assert len(figures["peak_gib"]) == RANKS
    assert min(figures["peak_gib"]) > 0
    assert figures["start_s"] > 0
    assert 0 < figures["all_reduce_share_of_time"] < 1
    assert 0 < figures["all_reduce_share_of_kernels"] < 1
    for of_length in figures["lengths"].values():
        assert of_length["tokens_per_s"] > 0
        assert of_length["bytes_per_s"] > 0
        # With fewer layers the same states come in less time; the bar is of the whole depth.
        assert of_length["ratio"] > (0.93 if LAYERS == FULL_DEPTH else 0)
    assert figures["alone"]["median"] > NEAR
    assert figures["kill_to_error_s"] < MOST_SECONDS_TO_AN_ERROR
    assert figures["resumed"]["median"] > NEAR
    checked = "\n".join(figures["checked"])
    assert f"by each of {RANKS} writers" in checked
    assert "all finite" in checked
    assert f"killed: rank {RANKS - 1}: the target failed in a step of" in checked
    assert "store whole" in checked
