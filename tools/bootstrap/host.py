"""What the set-up expects of the machine it runs on."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path

from tools.bootstrap.console import MEGABYTE
from tools.bootstrap.errors import BootstrapError


def strict() -> bool:
    """Whether EAGLE3_STRICT asks to refuse packages that are not the pinned ones."""
    return os.environ.get("EAGLE3_STRICT", "0") not in ("", "0")


def require_machine() -> None:
    """The pinned packages are for Linux on x86_64."""
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        raise BootstrapError(
            f"the pinned packages are for Linux x86_64 and this is {system} {machine}: "
            "use such a machine or container"
        )


def require_apt() -> None:
    missing = [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]
    if missing:
        raise BootstrapError(
            f"{' and '.join(missing)} not found: use a Debian 12 or 13 machine or container "
            "(on others: apt and dpkg from the distribution)"
        )


def require_pip() -> None:
    if importlib.util.find_spec("pip") is None:
        # That hides the machine's own pip, and uv puts none into those that it makes.
        environment = sys.prefix != sys.base_prefix
        install = "install it (apt-get install python3-pip)"
        remedy = "leave this virtual environment (deactivate)" if environment else install
        raise BootstrapError(f"{sys.executable} has no pip: {remedy}")


def require_space(folder: Path, needed_bytes: int) -> None:
    """Refuses to begin what the disk that holds folder (or will hold it) cannot take."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes < needed_bytes:
        raise BootstrapError(
            f"the disk of {folder} has {free_bytes // MEGABYTE} MB free and "
            f"{needed_bytes // MEGABYTE} MB are needed: free some space, or set EAGLE3_CACHE to "
            "a folder on another disk"
        )
