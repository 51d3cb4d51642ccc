"""Which machine results are of."""

import importlib
import os
import platform
from functools import cache
from pathlib import Path
from typing import Any

_COMMIT = Path(__file__).parents[2] / "COMMIT"


@cache
def describe_machine() -> dict[str, Any]:
    """Commit, GPUs, driver, memory and cores, for the head of a report."""
    return {
        "commit": _COMMIT.read_text().strip() if _COMMIT.exists() else "unknown",
        "system": f"{platform.system()} {platform.release()}",
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        **_gpus(),
    }


def _gpus() -> dict[str, Any]:
    nvml: Any = importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"gpus": 0, "gpu": f"none ({error})", "driver": ""}
    try:
        count = nvml.nvmlDeviceGetCount()
        first = nvml.nvmlDeviceGetHandleByIndex(0)
        return {
            "gpus": count,
            "gpu": nvml.nvmlDeviceGetName(first),
            "driver": nvml.nvmlSystemGetDriverVersion(),
        }
    finally:
        nvml.nvmlShutdown()
