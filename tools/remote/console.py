"""How the commands of this folder speak: one line a step on stderr, one line an error."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tools.bootstrap.errors import BootstrapError
from tools.remote.errors import ServiceError


def say(text: str) -> None:
    print(f"[remote] {text}", file=sys.stderr, flush=True)


def user_file(name: str) -> Path:
    """A path, seen from where the user stands: `bazel run` leads elsewhere."""
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), name).absolute()


def main(command: Callable[[], None], *, endless: bool = False) -> int:
    """Runs a command's body until it ends or is interrupted; returns the exit code.

    endless: an interruption is how the command ends, and no failure.
    """
    # A shell that starts it in the background has SIGINT ignored.
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.default_int_handler)
    try:
        command()
    except (BootstrapError, ServiceError, OSError) as error:
        say(f"ERROR: {error}")
        return 1
    except KeyboardInterrupt:
        say("stopped")
        return 0 if endless else 130
    return 0
