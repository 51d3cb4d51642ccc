"""Installs a lock into a directory with uv, saying what is fetched and how far it is."""

import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tools.bootstrap.cache import cache_root
from tools.python.environment import index

# Our interpreter brings its own libc (2.41): the machine's older one does not matter.
_PLATFORM = "x86_64-manylinux_2_40"
_QUIET_SECONDS = 5.0
_STARTED = re.compile(r"^\s*Downloading (\S+) \(([\d.]+)([KMG])iB\)")
_FINISHED = re.compile(r"^\s*Downloaded (\S+)")
_MB = {"K": 1024 / 1e6, "M": 1024**2 / 1e6, "G": 1024**3 / 1e6}


class InstallError(Exception):
    """The installer failed; its own words are in the message."""


def install(uv: Path, lock: Path, site: Path, say: Callable[[str], None]) -> None:
    """Installs every line of `lock` into `site` by hash; wheels are cached across clones.

    Args:
        uv: the uv program.
        lock: requirements with hashes.
        site: the directory to fill.
        say: prints one progress line.

    Raises:
        InstallError: a hash does not match, the index cannot be reached, the disk is full.
    """
    environment = {
        **os.environ,
        **index.uv_environment(index.pip_settings()),
        "UV_CACHE_DIR": str(cache_root() / "uv"),
        "UV_LINK_MODE": "hardlink",
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_HTTP_RETRIES": "5",
        "NO_COLOR": "1",
    }
    command = [
        str(uv),
        "pip",
        "install",
        f"--python={sys.executable}",
        f"--python-platform={_PLATFORM}",
        f"--target={site}",
        f"--requirements={lock}",
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        "--no-progress",
    ]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    words = _follow(process, say)
    if process.wait():
        raise InstallError("\n".join(words[-12:]))


def _follow(process: subprocess.Popen[str], say: Callable[[str], None]) -> list[str]:
    """Prints progress until the installer's output ends; returns what else it said."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.put(line.rstrip())
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    fetching: dict[str, float] = {}
    done_mb = 0.0
    words: list[str] = []
    begin = time.monotonic()
    while True:
        try:
            line = lines.get(timeout=_QUIET_SECONDS)
        except queue.Empty:
            if fetching:
                total = done_mb + sum(fetching.values())
                names = ", ".join(f"{n} {m:,.0f} MB" for n, m in fetching.items())
                elapsed = time.monotonic() - begin
                say(f"  {done_mb:,.0f} of {total:,.0f} MB after {elapsed:.0f} s; still: {names}")
            continue
        if line is None:
            return words
        if match := _STARTED.match(line):
            fetching[match[1]] = float(match[2]) * _MB[match[3]]
        elif match := _FINISHED.match(line):
            size = fetching.pop(match[1], 0.0)
            done_mb += size
            total = done_mb + sum(fetching.values())
            say(f"  {match[1]} {size:,.0f} MB fetched ({done_mb:,.0f} of {total:,.0f} MB)")
        elif not line.lstrip().startswith(("+ ", "Using CPython")):
            words.append(line)
