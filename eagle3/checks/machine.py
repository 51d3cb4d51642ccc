"""The machine as far as it bears on running a target; plain data, so that a test can make one."""

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from eagle3.checks.fatbin import GpuCode, read_gpu_code
from eagle3.engine.environment import physical_cores, runs_on_cpu
from eagle3.engine.installed import gpu_libraries
from eagle3.errors import InputError
from eagle3.memory import available_memory, total_memory


@dataclass(frozen=True)
class Gpu:
    """`capability` is that for compute, such as (9, 0); memory is in bytes."""

    name: str
    capability: tuple[int, int]
    memory: int
    free: int


@dataclass(frozen=True)
class Machine:
    """`device` is what the running stack is built for, whatever the machine has.

    `memory` is the host's, and `available` of it can be had, both in bytes and within the limit
    of a container. `driver` is the GPU driver's version, and `driver_cuda` the newest CUDA that it
    knows. `libraries` holds what read_gpu_code says of each of the stack's libraries.
    """

    device: Literal["cpu", "cuda"]
    cores: int
    memory: int
    available: int
    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    driver_cuda: tuple[int, int] = (0, 0)
    libraries: tuple[tuple[str, tuple[frozenset[GpuCode], ...]], ...] = ()


def read_machine() -> Machine:
    """This machine. Raises InputError where the stack needs a GPU driver that does not answer."""
    cores = len(physical_cores(os.sched_getaffinity(0)))
    memory = total_memory(), available_memory()
    if runs_on_cpu():
        return Machine("cpu", cores, *memory)
    # Only the CUDA stack has it.
    nvml: Any = importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise InputError(
            f"no GPU can be used ({error}); run where the NVIDIA driver is, or take the CPU stack"
        ) from error
    try:
        cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()
        return Machine(
            "cuda",
            cores,
            *memory,
            gpus=tuple(_read_gpu(nvml, handle) for handle in _visible_gpus(nvml)),
            driver=nvml.nvmlSystemGetDriverVersion(),
            driver_cuda=(cuda // 1000, cuda % 1000 // 10),
            libraries=tuple((name, _gpu_code(path)) for name, path in gpu_libraries().items()),
        )
    except nvml.NVMLError as error:
        raise InputError(
            f"the GPU driver does not tell what the checks look at ({error}); see nvidia-smi, or "
            "give --no-preflight"
        ) from error
    finally:
        nvml.nvmlShutdown()


def _visible_gpus(nvml: Any) -> list[Any]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    names = map(str.strip, visible.split(","))
    return [_handle(nvml, name) for name in names if name]


def _handle(nvml: Any, name: str) -> Any:
    try:
        if name.isdigit():
            return nvml.nvmlDeviceGetHandleByIndex(int(name))
        return nvml.nvmlDeviceGetHandleByUUID(name)
    except nvml.NVMLError as error:
        raise InputError(
            f"CUDA_VISIBLE_DEVICES names {name}, which the driver does not know ({error}); give "
            "numbers or whole UUIDs, as `nvidia-smi -L` lists them"
        ) from error


def _read_gpu(nvml: Any, handle: Any) -> Gpu:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(
        nvml.nvmlDeviceGetName(handle),
        tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        memory.total,
        memory.free,
    )


def _gpu_code(library: Path) -> tuple[frozenset[GpuCode], ...]:
    try:
        return read_gpu_code(library)
    except (OSError, ValueError) as error:
        raise InputError(f"the stack is damaged: {error}; set it up again") from error
