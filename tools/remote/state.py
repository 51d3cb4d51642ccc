"""What the service and the executor share: the folder of their state, and their programs."""

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path

from runfiles import Runfiles

from tools.remote.errors import ServiceError

# The store leaves this much of its disk unused, and drops what it keeps to get there.
RESERVED_BYTES = 2_000_000_000


def lack_of_space(state: Path) -> str | None:
    """A line on the disk of a state folder where it is too full for the store, else None."""
    free_bytes = shutil.disk_usage(state).free
    if free_bytes >= RESERVED_BYTES:
        return None
    return (
        f"the disk of {state} has {free_bytes // 1_000_000:,} MB free and the store leaves "
        f"{RESERVED_BYTES // 1_000_000:,} MB unused: it keeps nothing, and actions end with "
        "`not found`; free some space, or name another --state"
    )


@contextlib.contextmanager
def only_one(state: Path) -> Iterator[None]:
    """Holds the lock of the state folder, which the kernel drops however its holder ends.

    Raises ServiceError where another process holds it, or the folder's disk is full.
    """
    try:
        state.mkdir(parents=True, exist_ok=True)
        lock = (state / "lock").open("a")
    except OSError as error:
        raise ServiceError(
            f"cannot write {state} ({error.strerror}): name another --state"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServiceError(
                f"a service runs in {state} already: use that one, or name another --state"
            ) from None
        if lack := lack_of_space(state):
            raise ServiceError(lack)
        yield


class DiskWatch:
    """Tells, once each time, that the disk of a state folder has become too full."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._told = False

    def look(self) -> str | None:
        """The line to tell now, if any."""
        lack = lack_of_space(self._state)
        news = lack if not self._told else None
        self._told = lack is not None
        return news


def find_programs() -> Path:
    """The folder that the Debian programs were unpacked to; they name their libraries by it."""
    runfiles = Runfiles.Create()
    found = runfiles.Rlocation("remote_programs/packages/state") if runfiles else None
    if not found:
        raise ServiceError("start it with Bazel: tools/bazel run //tools/remote:service")
    return Path(found).resolve().parent
