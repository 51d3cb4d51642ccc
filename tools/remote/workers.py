"""buildbox: the store of files and results, and the workers that run actions from it."""

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.remote.processes import Command

# Actions get what Bazel gives them, and nothing of the worker's own environment.
_NO_ENVIRONMENT = "--runner-arg=--clearenv"
_CAP_SYS_ADMIN = 21


@dataclass(frozen=True)
class Pool:
    """Workers of one kind: how many actions each takes at a time and what it offers."""

    name: str
    slots: int
    properties: tuple[tuple[str, str], ...]


def can_mount_fuse() -> bool:
    """Whether inputs can be mounted instead of linked one by one, file by file."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return False
    status = Path("/proc/self/status").read_text()
    capabilities = int(status.partition("CapEff:")[2].split()[0], 16)
    return bool(capabilities >> _CAP_SYS_ADMIN & 1) or shutil.which("fusermount3") is not None


class Store:
    """A casd that keeps files by digest, and results by action, below `folder`."""

    def __init__(self, programs: Path, folder: Path, quota_gb: int) -> None:
        self._bin = programs / "usr/bin"
        self._folder = folder
        self._quota_gb = quota_gb
        self._socket = folder.with_suffix(".sock")
        self.url = f"unix:{self._socket}"

    def command(self, port: int) -> Command:
        self._socket.unlink(missing_ok=True)
        # casd finds buildbox-fuse, or does not, by PATH.
        path = ([str(self._bin)] if can_mount_fuse() else []) + ["/usr/bin", "/bin"]
        return Command(
            "casd",
            [
                self._bin / "buildbox-casd",
                f"--bind={self.url}",
                f"--bind=127.0.0.1:{port}",
                f"--quota-high={self._quota_gb}G",
                "--log-level=info",
                self._folder,
            ],
            environment={"PATH": os.pathsep.join(path)},
        )

    def ready(self) -> bool:
        return self._socket.is_socket()


def worker(
    programs: Path,
    name: str,
    *,
    server: str,
    store: str,
    slots: int,
    properties: Iterable[tuple[str, str]],
    environment: Mapping[str, str],
) -> Command:
    """A worker that takes actions from `server`; it ends after the ones it has begun."""
    binaries = programs / "usr/bin"
    words: list[str | Path] = [
        binaries / "buildbox-worker",
        f"--bots-remote={server}",
        f"--cas-remote={store}",
        f"--buildbox-run={binaries}/buildbox-run-hosttools",
        f"--concurrent-jobs={slots}",
        "--max-wait-time=5",
        "--log-level=info",
        _NO_ENVIRONMENT,
    ]
    for key, value in properties:
        words += ["--platform", f"{key}={value}"]
    return Command(name, [*words, name], environment=environment)
