"""Packs all that a bare GPU machine needs, in folders small enough to be sent one by one.

    tools/bazel run --config=cuda128 //tests/gpu:bundle -- FOLDER [--part-size 57000000]

FOLDER/00, FOLDER/01, ... hold the pinned image, trimmed by LEAVES_OUT, the code and tests of the
checkout's commit, and run.sh. There, all in one folder: `sh run.sh unpack`, `sh run.sh GROUP...`.
A later commit changes code.tar.gz alone: //tests/gpu:code.
"""

import argparse
import os
import shutil
import sys
import tarfile
from pathlib import Path

import zstandard

from tests.gpu.code_part import write_code
from tools.oci.bundle import whole_or_gone, write_bundle
from tools.oci.errors import ImageError, run
from tools.oci.repack import Repacker

_SITE = "usr/local/lib/python3.13/dist-packages"
# On top of what docker/layers.bzl leaves out of the image. An H200 runs FlashAttention 3; the
# image keeps FlashAttention 2 for Blackwell.
LEAVES_OUT = [
    f"{_SITE}/vllm/vllm_flash_attn/_vllm_fa2_C*",
]
# Beside the first parts there must be room for the scripts and the code.
_FIRST_FOLDER_BYTES = 8_000_000


def spread(files: list[Path], folder: Path, size: int, first: list[Path]) -> int:
    """Moves files to FOLDER/00, FOLDER/01, ...: the largest first, each where it fits.

    `first` go to 00. Returns the number of folders.
    """
    left: list[int] = [size - _FIRST_FOLDER_BYTES]
    for file in sorted(files, key=lambda file: (-file.stat().st_size, file.name)):
        needed = file.stat().st_size
        place = next((place for place, room in enumerate(left) if room >= needed), len(left))
        if place == len(left):
            left.append(size)
        left[place] -= needed
        _move(file, folder / f"{place:02}")
    for file in first:
        _move(file, folder / "00")
    return len(left)


def _move(file: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    file.rename(folder / file.name)


def _write_zstandard(archive: Path) -> None:
    """Packs the module that unpacks the layers there, by the image's own interpreter."""
    package = Path(zstandard.__file__).parent
    with tarfile.open(archive, "w:gz", compresslevel=6) as out:
        for file in (package / "__init__.py", *package.glob("backend_c.*.so")):
            out.add(file.resolve(), f"zstandard/{file.name}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bundle", description=__doc__)
    parser.add_argument("--layout", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--install", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--run", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--part-size", type=int, default=57_000_000, help="most bytes of a folder")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the compressor")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    folder = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), options.folder)
    repacker = Repacker(LEAVES_OUT, options.threads)
    script = options.install.read_text(encoding="utf-8")
    parts = write_bundle(options.layout, script, folder, options.part_size, repacker)
    with whole_or_gone(folder):
        repacker.check()
        shutil.copy(options.run, folder / "run.sh")
        _write_zstandard(folder / "zstandard.tar.gz")
        write_code(Path(os.environ["BUILD_WORKSPACE_DIRECTORY"]), folder)
        first = [file for file in folder.iterdir() if file not in parts]
        if sum(file.stat().st_size for file in first) > _FIRST_FOLDER_BYTES:
            raise ImageError(f"more than {_FIRST_FOLDER_BYTES:,} bytes of code and scripts")
        total = sum(part.stat().st_size for part in parts)
        count = spread(parts, folder, options.part_size, first)
    print(
        f"{count} folders in {folder}, {total:,} bytes; {repacker.left_out_bytes:,} bytes left out"
    )


if __name__ == "__main__":
    sys.exit(run(main))
