"""Folders that appear whole or not at all, made by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.bootstrap.console import say
from tools.bootstrap.errors import BootstrapError

_STAGE = ".stage-"


@contextlib.contextmanager
def exclusive(folder: Path, what: str) -> Iterator[None]:
    """Holds the lock of folder (made if missing); waits, and says so, while another has it.

    The kernel drops the lock when its holder ends, however it ends.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("a")
    except OSError as error:
        raise BootstrapError(
            f"cannot write {folder} ({error.strerror}): set EAGLE3_CACHE to a folder that you "
            "can write"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is {what}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A new folder inside folder, gone afterwards, as are those that killed processes left.

    The caller holds a lock that keeps others from staging in folder.
    """
    for leftover in folder.glob(f"{_STAGE}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    stage = Path(tempfile.mkdtemp(prefix=_STAGE, dir=folder))
    stage.chmod(0o755)
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)
