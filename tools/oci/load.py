"""Hands the image to podman or docker: `tools/bazel run //docker:load [-- podman|docker]`."""

import argparse
import contextlib
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tools.oci.errors import ImageError, run

_ENGINES = ("podman", "docker")


def main() -> None:
    parser = argparse.ArgumentParser(prog="load", description=__doc__)
    parser.add_argument("--layout", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--digest", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("engine", nargs="?", choices=_ENGINES)
    options = parser.parse_args()
    wanted = (options.engine,) if options.engine else _ENGINES
    engine = next(filter(shutil.which, wanted), None)
    if engine is None:
        missing = f"no {options.engine}" if options.engine else "neither podman nor docker"
        raise ImageError(f"{missing} is here: install one, or use //docker:push")
    # Both read a tar of an OCI layout from their standard input (docker since version 25).
    child = subprocess.Popen([engine, "load"], stdin=subprocess.PIPE)
    # An engine that gives up in the middle has said why: that is no error of this program's.
    with contextlib.suppress(BrokenPipeError):
        _write(options.layout.resolve(), child)
    if child.wait():
        raise ImageError(f"{engine} load ended with {child.returncode}; see above")
    print(options.digest.read_text().strip())


def _write(layout: Path, child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    with child.stdin, tarfile.open(fileobj=child.stdin, mode="w|", dereference=True) as archive:
        archive.add(layout, arcname=".")


if __name__ == "__main__":
    sys.exit(run(main))
