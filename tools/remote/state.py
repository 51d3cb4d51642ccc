"""What the service and the executor share: the folder of their state, and their programs."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from runfiles import Runfiles

from tools.remote.errors import ServiceError


@contextlib.contextmanager
def only_one(state: Path) -> Iterator[None]:
    """Holds the lock of the state folder, which the kernel drops however its holder ends."""
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
        yield


def find_programs() -> Path:
    """The folder that the Debian programs were unpacked to; they name their libraries by it."""
    runfiles = Runfiles.Create()
    found = runfiles.Rlocation("remote_programs/packages/state") if runfiles else None
    if not found:
        raise ServiceError("start it with Bazel: tools/bazel run //tools/remote:service")
    return Path(found).resolve().parent
