"""How workers are started."""

from pathlib import Path

import pytest

from tools.remote.errors import ServiceError
from tools.remote.gpus import Gpu, share_out
from tools.remote.workers import (
    Pool,
    Store,
    cpu_pool,
    gpu_pools,
    own_pools,
    slot_count,
    worker,
)


def started(folder: Path, pool: Pool) -> list[str]:
    command = worker(Path("/p"), folder, pool, server="http://s:1", store="unix:/c")
    return [str(word) for word in command.words]


def test_a_cpu_worker_passes_nothing_of_its_environment_on(tmp_path: Path) -> None:
    words = started(tmp_path, cpu_pool(3))
    assert "--runner-arg=--clearenv" in words
    assert "--concurrent-jobs=3" in words
    assert "Pool=cpu" in words
    assert words[-1] == "cpu"


def test_a_gpu_worker_runs_one_test_at_a_time_on_its_own_devices(tmp_path: Path) -> None:
    gpus = [Gpu(index, "nvidia-h200", 90) for index in range(3)]
    pools = gpu_pools(share_out(gpus, [1, 2]), "host")
    assert [pool.name for pool in pools] == ["host-gpu-0", "host-gpu-1-2"]
    for pool, devices in zip(pools, ("0", "1,2"), strict=True):
        words = started(tmp_path, pool)
        assert "--concurrent-jobs=1" in words
        variables = tmp_path / f"{pool.name}.env"
        assert f"--runner-arg=--env-file={variables}" in words
        # By the numbers of nvidia-smi, which CUDA's own order does not follow on a mixed host.
        assert variables.read_text().splitlines() == [
            "CUDA_DEVICE_ORDER=PCI_BUS_ID",
            f"CUDA_VISIBLE_DEVICES={devices}",
        ]


def test_a_pool_without_slots_is_not_there() -> None:
    slots = share_out([Gpu(0, "nvidia-h200", 90)], [1])
    assert [pool.name for pool in own_pools(2, 1, slots)] == ["cpu", "image", "service-gpu-0"]
    assert [pool.name for pool in own_pools(0, 0, slots)] == ["service-gpu-0"]


@pytest.mark.parametrize("text", ["-1", "two"])
def test_a_number_of_slots_is_none_or_more(text: str) -> None:
    assert slot_count("0") == 0
    with pytest.raises(ValueError, match=text):
        slot_count(text)


def test_a_folder_too_long_for_a_socket_is_refused() -> None:
    assert Store(Path("/p"), Path("/", 99 * "x", "s"), 1).url.endswith("/s.sock")
    with pytest.raises(ServiceError, match=r"of 108 bytes, .* 107: name a shorter --state"):
        Store(Path("/p"), Path("/", 50 * "ü", "s"), 1)
