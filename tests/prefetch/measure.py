"""Prints how much of a slow file system's bandwidth a loader gets, and prefetching."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from eagle3.extraction.prefetch import Prefetch
from eagle3.progress import Progress
from tests.prefetch.slow_files import slow_files


@click.command(context_settings={"show_default": True})
@click.option("--files", default=4)
@click.option("--mib", default=128, help="Size of a file.")
@click.option("--latency", default=0.02, help="Seconds that a read takes at least.")
@click.option("--mb-per-s", default=200.0, help="Bandwidth of all reads together.")
def measure(files: int, mib: int, latency: float, mb_per_s: float) -> None:
    size = mib * 2**20

    def rate(what: str, read: Callable[[list[Path]], None]) -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            slow_files(
                Path(folder), files=files, size=size, latency=latency, bytes_per_s=mb_per_s * 1e6
            ) as paths,
        ):
            began = time.monotonic()
            read(paths)
            measured = files * size / (time.monotonic() - began) / 1e6
            print(f"{what:<12} {measured:7.1f} MB/s, {measured / mb_per_s:.0%}", flush=True)

    rate("one by one", _read_one_by_one)
    rate("prefetching", _prefetch)


def _read_one_by_one(paths: list[Path]) -> None:
    buffer = bytearray(2**20)
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _prefetch(paths: list[Path]) -> None:
    with Prefetch(paths, Progress()) as prefetch:
        prefetch.wait()


if __name__ == "__main__":
    measure()
