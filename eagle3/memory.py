"""The host memory that this process may still use, within its container's limit."""

from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")


def total_memory() -> int:
    """Bytes of memory of the machine, or of the container if it has less."""
    limit = _cgroup_number("memory.max")
    total = psutil.virtual_memory().total
    return total if limit is None else min(total, limit)


def available_memory() -> int:
    """Bytes that can be had without swapping: free memory, and the page cache."""
    available = psutil.virtual_memory().available
    limit, used = _cgroup_number("memory.max"), _cgroup_number("memory.current")
    if limit is None or used is None:
        return available
    return min(available, max(0, limit - used + _cgroup_page_cache()))


def _cgroup_number(name: str) -> int | None:
    """None outside of a container, where cgroups are of version 1, and for `max`, no limit."""
    try:
        return int((_CGROUP / name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _cgroup_page_cache() -> int:
    try:
        lines = (_CGROUP / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    fields = dict(line.split() for line in lines)
    return int(fields["inactive_file"]) + int(fields["active_file"])
