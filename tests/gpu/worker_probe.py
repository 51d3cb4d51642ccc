"""What is asked of a target's worker processes: memory, where a step's time goes, livelier weights.

The functions run in the workers, which import them by name; each is given vLLM's worker.
"""

import re
import resource
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

# NCCL's kernels, vLLM's own all-reduce on GPUs, and its operation on CPUs.
_COMMUNICATION = re.compile(r"nccl|all_?reduce|cross_device_reduce|all_?gather", re.IGNORECASE)
_MOST_KERNELS = 15
# Far apart, so that rounding never decides between two experts.
_BIAS_FACTOR = 1e4
_running: list[tuple[Any, float]] = []
_set_aside: list[tuple[torch.Tensor, torch.Tensor]] = []


@dataclass(frozen=True)
class Profile:
    """Where a process's time went: of a GPU's kernels, or of a CPU's operations.

    `seconds` passed; `busy` of them with kernels (on a GPU streams can overlap) and
    `communication` in kernels that wait for other ranks. `kernels` are (name, seconds, calls), the
    dearest first.
    """

    seconds: float
    busy: float
    communication: float
    kernels: tuple[tuple[str, float, int], ...]


def start_profile(_: Any) -> None:
    """Begins to record in this worker."""
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities = [ProfilerActivity.CUDA]
        torch.cuda.synchronize()
    recorder = profile(activities=activities)
    recorder.start()
    _running.append((recorder, time.monotonic()))


def stop_profile(_: Any) -> Profile:
    """Ends what start_profile began."""
    recorder, began = _running.pop()
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.synchronize()
    seconds = time.monotonic() - began
    recorder.stop()
    kernels = []
    for event in recorder.key_averages():
        micros = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        if micros:
            kernels.append((event.key, micros / 1e6, event.count))
    kernels.sort(key=lambda kernel: -kernel[1])
    return Profile(
        seconds,
        sum(kernel[1] for kernel in kernels),
        sum(kernel[1] for kernel in kernels if _COMMUNICATION.search(kernel[0])),
        tuple(kernels[:_MOST_KERNELS]),
    )


def peak_bytes(_: Any) -> int:
    """The most memory that this worker has held: of its GPU, or of the host on a CPU.

    On a GPU: torch's peak, and what else the device has in use by now (libraries, communication).
    """
    if not torch.cuda.is_available():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    free, total = torch.cuda.mem_get_info()
    other = total - free - torch.cuda.memory_reserved()
    return torch.cuda.max_memory_reserved() + other


@torch.no_grad()
def enliven(worker: Any) -> None:
    """Makes the layers of random weights matter, until `restore`.

    vLLM's random weights are of 0.001, norms too, so that layers add next to nothing to the
    embedding: the states of a wrong layer would hardly differ. Norms become 1.
    """
    for name, weight in worker.model_runner.get_model().named_parameters():
        if "norm" in name:
            livelier = torch.ones_like(weight)
        elif name.endswith("e_score_correction_bias"):
            livelier = weight * _BIAS_FACTOR
        else:
            continue
        _set_aside.append((weight, weight.clone()))
        weight.copy_(livelier)


@torch.no_grad()
def restore(_: Any) -> None:
    """Ends what `enliven` began."""
    while _set_aside:
        weight, value = _set_aside.pop()
        weight.copy_(value)
