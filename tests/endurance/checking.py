"""Prints how many bytes of states one core checks in a second, as a checker of an extraction does.

The rows lie in a shard in work, in the page cache, where the workers of the target have put them.
"""

import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import click
import torch

from eagle3.extraction.groups import fill_groups
from eagle3.extraction.run import CHECKED_BYTES
from eagle3.extraction.states import find_faults
from eagle3.store.sample import Sample
from eagle3.store.shard_writer import ShardWriter, write_rows
from eagle3.store.writer import StoreWriter
from tests.unit.store.stored import make_manifest

_POINTS = (2, 4, 6, 7)
_TOKENS = 1_000_000  # of a vocabulary


@click.command(context_settings={"show_default": True})
@click.option("--folder", show_default="a temporary one", help="Where the shard is written.")
@click.option("--gigabytes", default=1.0, help="States of each shape.")
@click.option("--rounds", default=3, help="Times to measure each shape; the best counts.")
def main(folder: str | None, gigabytes: float, rounds: int) -> None:
    """One line a shape of samples; the rates are of CPU time."""
    torch.set_num_threads(1)
    click.echo(
        f"{'[tokens, points, hidden]':<28}{'detectors':>12}{'checksum':>12}{'both':>12}   GB/s"
    )
    for length, hidden_size in ((2047, 7168), (512, 4096), (512, 576)):
        sample_bytes = length * len(_POINTS) * hidden_size * 2
        samples = _make_samples(max(1, round(gigabytes * 1e9 / sample_bytes)), length)
        seconds = [_measure(samples, hidden_size, folder) for _ in range(rounds)]
        best = min(seconds, key=sum)
        rates = [len(samples) * sample_bytes / 1e9 / taken for taken in (*best, sum(best))]
        shape = f"[{length}, {len(_POINTS)}, {hidden_size}]"
        click.echo(f"{shape:<28}" + "".join(f"{rate:>12.1f}" for rate in rates))


def _make_samples(count: int, length: int) -> list[Sample]:
    generator = torch.Generator().manual_seed(0)
    tokens_NT = torch.randint(_TOKENS, (count, length), generator=generator)
    return [Sample(tuple(tokens_T), (1,) * length) for tokens_T in tokens_NT.tolist()]


def _measure(samples: list[Sample], hidden_size: int, folder: str | None) -> tuple[float, float]:
    """CPU seconds of the detectors and of the checksums."""
    manifest = make_manifest(tuple(samples), hidden_size)
    manifest = replace(manifest, capture_points=_POINTS)
    detectors_s = checksum_s = 0.0
    with (
        tempfile.TemporaryDirectory(dir=folder) as scratch,
        StoreWriter(Path(scratch, "states"), manifest) as store,
    ):
        _write(store.begin(samples), samples, hidden_size)
        for group in fill_groups(
            samples, CHECKED_BYTES, lambda sample: manifest.states_bytes(len(sample.input_ids))
        ):
            began = time.thread_time()
            faults = find_faults(
                [sample.input_ids for sample in group],
                [store.written_states(sample) for sample in group],
                _POINTS,
            )
            looked = time.thread_time()
            for sample in group:
                store.accept(sample)
            detectors_s += looked - began
            checksum_s += time.thread_time() - looked
            assert not any(faults)
    return detectors_s, checksum_s


def _write(shard: ShardWriter, samples: list[Sample], hidden_size: int) -> None:
    descriptor = os.open(shard.path, os.O_WRONLY)
    for sample in samples:
        states_TLH = torch.randn(len(sample.input_ids), len(_POINTS), hidden_size).bfloat16()
        write_rows(descriptor, shard.layout, shard.offset(sample), states_TLH)
    os.close(descriptor)


if __name__ == "__main__":
    main()
