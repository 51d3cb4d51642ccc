"""The machine is read from the driver's own library, and memory within a container's limit."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from eagle3 import memory
from eagle3.checks import machine
from eagle3.checks.machine import Gpu, read_machine
from eagle3.errors import InputError
from tests.unit.checks.fatbin_test import container, entry, library


class NvmlError(Exception):
    """What NVIDIA's management library raises."""


def make_nvml() -> SimpleNamespace:
    """That library on a machine of three GPUs, as pynvml 13 has it; `begun` counts its users."""
    nvml = SimpleNamespace(
        __spec__=None,
        begun=0,
        NVMLError=NvmlError,
        nvmlSystemGetCudaDriverVersion_v2=lambda: 12080,
        nvmlSystemGetDriverVersion=lambda: "570.86.15",
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetHandleByUUID=lambda uuid: {"GPU-b": 1}[uuid],
        nvmlDeviceGetName=lambda handle: f"GPU {handle}",
        nvmlDeviceGetCudaComputeCapability=lambda handle: (10, handle),
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=180, free=100 + handle),
    )

    def count(change: int) -> None:
        nvml.begun += change

    nvml.nvmlInit = lambda: count(1)
    nvml.nvmlShutdown = lambda: count(-1)
    return nvml


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    nvml = make_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(machine, "runs_on_cpu", lambda: False)
    path = library(tmp_path / "x.so", container(entry("sass", 80, (1, 7))))
    monkeypatch.setattr(machine, "gpu_libraries", lambda: {"vllm/x.so": path})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return nvml


def test_this_machine_has_cores_and_memory() -> None:
    found = read_machine()
    assert found.device == "cpu"
    assert found.cores >= 1
    assert 0 < found.available <= found.memory


def test_gpus_driver_and_libraries_are_read(nvml: SimpleNamespace) -> None:
    found = read_machine()
    assert (found.device, found.driver, found.driver_cuda) == ("cuda", "570.86.15", (12, 8))
    assert found.gpus[1] == Gpu("GPU 1", (10, 1), 180, 101)
    assert len(found.gpus) == 3
    [(name, [unit])] = found.libraries
    assert name == "vllm/x.so"
    assert [code.capability for code in unit] == [(8, 0)]
    assert nvml.begun == 0


@pytest.mark.parametrize(
    ("visible", "names"),
    [("2,0", ["GPU 2", "GPU 0"]), ("2, 0", ["GPU 2", "GPU 0"]), ("GPU-b", ["GPU 1"]), ("", [])],
)
def test_only_visible_gpus_count(
    nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, visible: str, names: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.name for gpu in read_machine().gpus] == names


def test_without_a_driver_the_way_out_is_told(
    nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise NvmlError("NVML Shared Library Not Found")

    nvml.nvmlInit = fail
    with pytest.raises(InputError, match=r"no GPU can be used .*Not Found.*take the CPU stack"):
        read_machine()


@pytest.mark.parametrize("visible", ["-1", "0, GPU-none"])
def test_a_gpu_that_there_is_not_is_named(
    nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    def fail(uuid: str) -> None:
        raise NvmlError("Invalid Argument")

    nvml.nvmlDeviceGetHandleByUUID = fail
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(InputError, match=r"CUDA_VISIBLE_DEVICES names (-1|GPU-none), which"):
        read_machine()
    assert nvml.begun == 0


def test_a_driver_that_does_not_tell_is_told(nvml: SimpleNamespace) -> None:
    """As of a GPU without memory of its own."""

    def fail(handle: int) -> None:
        raise NvmlError("Not Supported")

    nvml.nvmlDeviceGetMemoryInfo = fail
    with pytest.raises(InputError, match=r"\(Not Supported\); .* --no-preflight"):
        read_machine()


def test_a_damaged_library_is_told(nvml: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "gpu_libraries", lambda: {"vllm/x.so": Path(__file__)})
    with pytest.raises(InputError, match="the stack is damaged"):
        read_machine()


@pytest.mark.parametrize(
    ("limit", "used", "total", "available"),
    [
        ("max", "700", 1000, 400),
        ("900", "700", 900, 250),
        ("900", "1200", 900, 0),
        ("5000", "700", 1000, 400),
        (None, None, 1000, 400),
    ],
)
def test_memory_is_that_of_the_container(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    limit: str | None,
    used: str | None,
    total: int,
    available: int,
) -> None:
    host = SimpleNamespace(total=1000, available=400)
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: host)
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    if limit is not None and used is not None:
        (tmp_path / "memory.max").write_text(limit + "\n")
        (tmp_path / "memory.current").write_text(used + "\n")
        (tmp_path / "memory.stat").write_text("anon 650\ninactive_file 30\nactive_file 20\n")
    assert memory.total_memory() == total
    assert memory.available_memory() == available
