"""The one exception that the image tools raise on purpose, and how a tool ends with it."""

import errno
import sys
from collections.abc import Callable


class ImageError(Exception):
    """Something that must not get into an image: one line that says what, and what to do next."""


def run(command: Callable[[], None]) -> int:
    """Runs a tool's body; returns its exit code. Errors are one line each on stderr."""
    try:
        command()
    except (ImageError, OSError) as error:
        full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        # The kernel does not say which file it was, and Bazel names the step.
        reason = "the disk is full: free some space, and do this again" if full else error
        print(f"ERROR: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0
