"""The cache folder of this machine, shared by all clones, and its files kept by SHA-256."""

from __future__ import annotations

import hashlib
import os
import pwd
from pathlib import Path

from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.pins import Pin


def cache_root() -> Path:
    """$EAGLE3_CACHE, else eagle3 under $XDG_CACHE_HOME, else under .cache of the home folder."""
    if chosen := os.environ.get("EAGLE3_CACHE"):
        # Each step runs in a folder of its own.
        if not os.path.isabs(chosen):
            raise BootstrapError(f"EAGLE3_CACHE must be an absolute path and is {chosen}")
        return Path(chosen)
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):
        return Path(xdg, "eagle3")
    home = os.environ.get("HOME")
    if not home:
        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            raise BootstrapError(
                "HOME is not set and this user has no home folder: set EAGLE3_CACHE to a folder "
                "that you can write"
            ) from None
    return Path(home).absolute() / ".cache" / "eagle3"


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def wrong_hash(what: str, expected: str, found: str) -> str:
    """The error text for bytes that are not the pinned ones."""
    return (
        f"wrong SHA-256 of {what}: expected {expected}, found {found}; the mirror or a proxy has "
        "altered it: try again, or use another mirror"
    )


class FileCache:
    """A folder of files named by their SHA-256. What it hands out has been checked."""

    def __init__(self, folder: Path, suffix: str) -> None:
        self.folder = folder
        self._suffix = suffix

    def get(self, pin: Pin) -> Path | None:
        """The file of pin, or None where it is not there; a damaged one is removed."""
        path = self.folder / f"{pin.sha256}{self._suffix}"
        if not path.exists():
            return None
        if sha256_of(path) != pin.sha256:
            path.unlink()
            return None
        return path

    def put(self, file: Path, pin: Pin) -> Path:
        """Moves in a file of the same disk. BootstrapError where its bytes are not pin's."""
        found = sha256_of(file)
        if found != pin.sha256:
            raise BootstrapError(wrong_hash(file.name, pin.sha256, found))
        path = self.folder / f"{pin.sha256}{self._suffix}"
        file.replace(path)
        return path
