"""Writes the image as files for machines without network or container engine.

    tools/bazel run //docker:bundle -- FOLDER [--part-size 1GB]

FOLDER gets the layers, cut into numbered parts, their checksums, and install.sh, which needs sh,
coreutils, tar and gzip alone. `sh install.sh ROOT` unpacks there and leaves ROOT/run-in-image.
"""

import argparse
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from tools.oci.errors import ImageError, run
from tools.oci.validate import blob_path, read_blob

_UNITS = {"MB": 10**6, "GB": 10**9, "MiB": 1 << 20, "GiB": 1 << 30}
_BLOCK = 1 << 20
# install.sh takes a layer's parts in the order of their names, which end in three digits.
_MAX_PARTS = 1000

# Packs a layer (tar.gz) anew, as tar.zst.
Repack = Callable[[BinaryIO, BinaryIO], None]


def part_size(text: str) -> int:
    """Bytes of a size such as 500MB or 1GiB."""
    match = re.fullmatch(r"(\d+)(MB|GB|MiB|GiB)", text)
    if not match or not int(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 500MB or 1GiB")
    return int(match[1]) * _UNITS[match[2]]


def write_bundle(
    layout: Path, script: str, folder: Path, size: int, repack: Repack | None = None
) -> list[Path]:
    """Fills `folder`, a new one, or leaves none; returns its parts in order.

    Args:
        layout: the image.
        script: text of install.sh.
        folder: to be made.
        size: most bytes of a part.
        repack: how to pack layers that are larger than a part; without it they stay as they are.

    Raises:
        ImageError: the folder exists, its disk is too small, or the parts are.
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
    with whole_or_gone(folder):
        parts, sums = _write_layers(layout, manifest["layers"], folder, size, repack)
        (folder / "SHA256SUMS").write_text("".join(sums))
        (folder / "environment").write_text(_environment(settings))
        (folder / "install.sh").write_text(script)
        (folder / "install.sh").chmod(0o755)
    return parts


@contextmanager
def whole_or_gone(folder: Path) -> Iterator[None]:
    """A context that fills `folder`, which its caller has made: where it fails, the folder goes."""
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _write_layers(
    layout: Path,
    layers: Sequence[Mapping[str, Any]],
    folder: Path,
    size: int,
    repack: Repack | None,
) -> tuple[list[Path], list[str]]:
    """The parts in order, and their lines for sha256sum."""
    parts, sums = [], []
    for number, layer in enumerate(layers):
        megabytes = layer["size"] / 1e6
        print(f"layer {number + 1} of {len(layers)}, {megabytes:,.1f} MB", file=sys.stderr)
        stem = f"layer-{number:02}"
        with blob_path(layout, layer["digest"]).open("rb") as blob:
            if repack and layer["size"] > size:
                writer = PartWriter(folder, f"{stem}.zst", size)
                repack(blob, cast("BinaryIO", writer))
            else:
                writer = PartWriter(folder, stem, size)
                shutil.copyfileobj(blob, writer, _BLOCK)
        writer.close()
        parts += writer.parts
        sums += writer.sums
    return parts, sums


class PartWriter(io.RawIOBase):
    """Cuts what is written to it into files STEM.part-NNN of at most `size` bytes.

    `parts` are the files in order, `sums` their lines for sha256sum; both are whole after close().
    write() raises ImageError where a thousand parts do not suffice.
    """

    def __init__(self, folder: Path, stem: str, size: int) -> None:
        self.parts: list[Path] = []
        self.sums: list[str] = []
        self._folder, self._stem, self._size = folder, stem, size
        self._file: BinaryIO | None = None
        self._left = 0

    def writable(self) -> bool:
        return True

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        view = memoryview(data)
        while view:
            if self._file is None:
                self._begin()
            piece = view[: self._left]
            self._file.write(piece)  # type: ignore[union-attr]
            self._sha256.update(piece)
            self._left -= len(piece)
            view = view[len(piece) :]
            if not self._left:
                self._end()
        return len(data)

    def close(self) -> None:
        if self._file is not None:
            self._end()
        super().close()

    def _begin(self) -> None:
        if len(self.parts) == _MAX_PARTS:
            raise ImageError(
                f"a layer needs more than {_MAX_PARTS:,} parts of {self._size:,} bytes: "
                "name a larger --part-size"
            )
        self.parts.append(self._folder / f"{self._stem}.part-{len(self.parts):03}")
        self._file, self._left = self.parts[-1].open("wb"), self._size
        self._sha256 = hashlib.sha256()

    def _end(self) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None
        self.sums.append(f"{self._sha256.hexdigest()}  {self.parts[-1].name}\n")


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
