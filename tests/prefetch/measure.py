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
@click.option("--mib", default=256, help="Size of a file.")
@click.option("--latency", default=0.02, help="Seconds that a read takes at least.")
@click.option("--mb-per-s", default=200.0, help="Bandwidth of all reads together.")
def measure(files: int, mib: int, latency: float, mb_per_s: float) -> None:
    """Needs the right to mount, and /dev/fuse."""
    with tempfile.TemporaryDirectory() as source:
        for number in range(files):
            with Path(source, f"model-{number + 1:05d}.safetensors").open("wb") as file:
                file.truncate(mib * 2**20)
        for what, read in (("one by one", _read_one_by_one), ("prefetching", _prefetch)):
            rate = _rate(Path(source), read, latency, mb_per_s * 1e6)
            click.echo(f"{what:<12}{rate / 1e6:7.1f} MB/s, {rate / mb_per_s / 1e6:.0%}")


def _rate(
    source: Path, read: Callable[[list[Path]], None], latency: float, bytes_per_s: float
) -> float:
    """Bytes a second; a fresh mount has nothing in the page cache."""
    with (
        tempfile.TemporaryDirectory() as folder,
        slow_files(source, Path(folder), latency=latency, bytes_per_s=bytes_per_s),
    ):
        paths = sorted(Path(folder).iterdir())
        began = time.monotonic()
        read(paths)
        seconds = time.monotonic() - began
        return sum(path.stat().st_size for path in paths) / seconds


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
