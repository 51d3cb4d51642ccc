"""Writes the image as files for machines without network or container engine.

    tools/bazel run //docker:bundle -- FOLDER [--part-size 1GB]

FOLDER gets the layers, cut into numbered parts, their checksums, and install.sh, which needs sh,
coreutils, tar and gzip alone. `sh install.sh ROOT` unpacks there and leaves ROOT/run-in-image.
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tools.oci.errors import ImageError, run
from tools.oci.validate import blob_path, read_blob

_UNITS = {"MB": 10**6, "GB": 10**9, "MiB": 1 << 20, "GiB": 1 << 30}
_BLOCK = 1 << 20


def part_size(text: str) -> int:
    """Bytes of a size such as 500MB or 1GiB."""
    match = re.fullmatch(r"(\d+)(MB|GB|MiB|GiB)", text)
    if not match or not int(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 500MB or 1GiB")
    return int(match[1]) * _UNITS[match[2]]


def write_bundle(layout: Path, script: str, folder: Path, size: int) -> list[Path]:
    """Fills `folder`, a new one; returns its parts in order.

    Raises:
        ImageError: the folder exists, or its disk is too small.
    """
    index = json.loads((layout / "index.json").read_bytes())
    manifest = read_blob(layout, index["manifests"][0])
    settings = read_blob(layout, manifest["config"])["config"]
    total = sum(layer["size"] for layer in manifest["layers"])
    if folder.exists():
        raise ImageError(f"{folder} is there already: name a new folder")
    free = shutil.disk_usage(folder.parent).free
    if free < total:
        raise ImageError(f"{folder.parent} has {free:,} bytes free and {total:,} are needed")
    folder.mkdir()
    parts, sums = [], []
    for number, layer in enumerate(manifest["layers"]):
        with blob_path(layout, layer["digest"]).open("rb") as blob:
            for piece, digest in _cut(blob, size, folder, f"layer-{number:02}"):
                parts.append(piece)
                sums.append(f"{digest}  {piece.name}\n")
    (folder / "SHA256SUMS").write_text("".join(sums))
    (folder / "environment").write_text(_environment(settings))
    (folder / "install.sh").write_text(script)
    (folder / "install.sh").chmod(0o755)
    return parts


def _cut(blob: BinaryIO, size: int, folder: Path, stem: str) -> Iterator[tuple[Path, str]]:
    """Writes a blob as files of at most `size` bytes; yields each with its SHA-256."""
    number, block = 0, blob.read(min(size, _BLOCK))
    while block:
        piece, digest, left = folder / f"{stem}.part-{number:03}", hashlib.sha256(), size
        with piece.open("wb") as out:
            while block:
                out.write(block)
                digest.update(block)
                left -= len(block)
                block = blob.read(min(left, _BLOCK)) if left else b""
        yield piece, digest.hexdigest()
        number, block = number + 1, blob.read(min(size, _BLOCK))


def _environment(settings: Mapping[str, Any]) -> str:
    """The image's variables as lines that a shell reads."""
    lines = (line.split("=", 1) for line in settings["Env"])
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bundle", description=__doc__)
    parser.add_argument("--layout", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--script", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--part-size", type=part_size, default="1GB")
    options = parser.parse_args()
    folder = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), options.folder)
    script = options.script.read_text(encoding="utf-8")
    parts = write_bundle(options.layout, script, folder, options.part_size)
    print(f"{len(parts)} parts in {folder}; there: sh install.sh ROOT")


if __name__ == "__main__":
    sys.exit(run(main))
