"""File operations that survive a kill and a power cut."""

import os
from pathlib import Path

PARTIAL = ".partial"


def write_file(path: Path, content: bytes) -> None:
    """Makes `path` appear with all of `content`, or not at all; `sync_folder` makes it last."""
    partial = path.with_name(path.name + PARTIAL)
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)


def sync_folder(folder: Path) -> None:
    """Makes the renames and new files in `folder` last."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
