"""Runs the few programs of the host that the set-up needs."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tools.bootstrap.errors import BootstrapError

_MAX_REASON = 300
_DISK_CHECK_INTERVAL_S = 1.0
_FULL_BYTES = 2_000_000


def run(
    command: Sequence[str | Path],
    *,
    action: str,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> str:
    """Runs command and returns what it printed (stdout and stderr together).

    Raises BootstrapError "cannot <action>: <reason>" where it fails, and OSError(ENOSPC) where
    it ran out of disk.
    """
    status, output = attempt(command, cwd=cwd, env=env)
    if status:
        raise BootstrapError(f"cannot {action}: {reason(output) or f'exit status {status}'}")
    return output


def attempt(
    command: Sequence[str | Path], *, cwd: Path | None = None, env: dict[str, str] | None = None
) -> tuple[int, str]:
    """Runs command; returns its exit status and what it printed. OSError(ENOSPC) as in run.

    While it runs the disk of cwd is watched: apt-get waits for ever once that is full.
    """
    words = [str(word) for word in command]
    try:
        child = subprocess.Popen(
            words,
            cwd=cwd,
            env={**os.environ, "LC_ALL": "C.UTF-8", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except FileNotFoundError as error:
        raise BootstrapError(f"{words[0]} is not on this machine: install it") from error
    full = False
    with child:
        try:
            while True:
                try:
                    output, _ = child.communicate(timeout=_DISK_CHECK_INTERVAL_S)
                    break
                except subprocess.TimeoutExpired:
                    if cwd and shutil.disk_usage(cwd).free < _FULL_BYTES:
                        full = True
                        child.kill()
        except BaseException:
            child.kill()
            raise
    if full or (child.returncode and "No space left on device" in output):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(cwd) if cwd else None)
    return child.returncode, output


def reason(output: str) -> str:
    """The line of a program's output that says why it failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"E:|error|dpkg-deb: error", line, re.IGNORECASE)]
    line = next(iter(errors or lines[-1:]), "")
    return re.sub(r"^(E|ERROR): *", "", line)[:_MAX_REASON]
