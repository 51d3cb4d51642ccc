"""What the workspace status of a release says: see tools/oci/status.sh."""

from dataclasses import dataclass
from pathlib import Path

from tools.oci.errors import ImageError


@dataclass(frozen=True)
class Release:
    """The commit that is released, and when it was made, in seconds since 1970."""

    commit: str
    seconds: int


def read_release(status: Path) -> Release:
    """Reads Bazel's stable-status.txt. ImageError where it names no commit."""
    lines = status.read_text(encoding="utf-8").splitlines()
    values = dict(line.split(" ", 1) for line in lines if " " in line)
    try:
        return Release(values["STABLE_COMMIT"], int(values["STABLE_COMMIT_TIME"]))
    except (KeyError, ValueError):
        raise ImageError(
            "a stamped image names its commit, and the workspace status has none: build it with "
            "--config=release"
        ) from None
