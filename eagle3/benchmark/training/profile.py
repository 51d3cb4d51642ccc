"""Where the time of a training step goes, kernel by kernel."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

_KERNELS = 60


def write_profile(step: Callable[[int], torch.Tensor], device: torch.device, path: Path) -> None:
    """Writes a table of the kernels of one step, the dearest first."""
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities, record_shapes=True) as recorded:
        step(0).item()
    order = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
    averages = recorded.key_averages()
    table = averages.table(sort_by=order, row_limit=_KERNELS, max_name_column_width=120)
    path.write_text(table, encoding="utf-8")
