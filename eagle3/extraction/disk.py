"""The disk that states take: how much, how long to fill it, and what would take less."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median

from eagle3.errors import StoreError
from eagle3.extraction.size import readable_size
from eagle3.store.manifest import Manifest
from eagle3.store.row_format import FLOAT8
from eagle3.store.sample import Sample

# A sample's lines in index and journal; and a shard's header and the rest of its last disk block.
_OVERHEAD_BYTES_PER_SAMPLE = 512
_OVERHEAD_BYTES_PER_SHARD = 16384


@dataclass(frozen=True)
class DiskPlan:
    """Bytes that the samples to come need and that are free in the folder they go to.

    `bytes_per_s` is the rate at which earlier runs filled the same store, None where fewer than
    two shards tell it.
    """

    needed: int
    free: int
    bytes_per_s: float | None = None

    @property
    def seconds(self) -> float | None:
        """What is needed at the rate of earlier runs."""
        return self.needed / self.bytes_per_s if self.bytes_per_s else None


def plan_disk(
    samples: Sequence[Sample],
    manifest: Manifest,
    store: Path,
    shard_bytes: int,
    *,
    begun: bool,
    budget: int | None = None,
) -> DiskPlan:
    """What the states of `samples` need in the folder `store`, which may not exist yet.

    `begun` says that samples of this run are there already: then its layers and its dataset are
    settled. With a `budget` of bytes, no more than that is needed at a time. Raises StoreError
    where the states do not fit, with what would.
    """
    needed = bytes_needed(samples, manifest, shard_bytes)
    if budget is not None:
        needed = min(needed, budget)
    free = _bytes_free(store)
    if needed <= free:
        return DiskPlan(needed, free, _measured_rate(store))
    smaller = _smaller(samples, manifest, shard_bytes, needed, free, begun)
    raise StoreError(
        f"{readable_size(needed)} are needed in {store} and {readable_size(free)} are free; give "
        f"another --out, or {', or '.join(smaller)}"
    )


def _smaller(
    samples: Sequence[Sample],
    manifest: Manifest,
    shard_bytes: int,
    needed: int,
    free: int,
    begun: bool,
) -> list[str]:
    smaller = []
    points = manifest.capture_points
    if not begun:
        fp8 = bytes_needed(samples, replace(manifest, dtype=FLOAT8), shard_bytes)
        if fp8 < needed and fp8 <= free:
            smaller.append(f"--fp8-states ({readable_size(fp8)}, rows are off by 2 %)")
        for fewer in range(len(points) - 1, 0, -1):
            kept = replace(manifest, capture_points=points[:fewer])
            size = bytes_needed(samples, kept, shard_bytes)
            if size <= free:
                smaller.append(f"{fewer} of the {len(points)} --layers ({readable_size(size)})")
                break
        sizes = accumulate(bytes_needed([sample], manifest, shard_bytes) for sample in samples)
        fitting = sum(size <= free for size in sizes)
        if fitting:
            smaller.append(f"--limit {fitting} of the {len(samples):,} samples")
    parts = -(-needed // free) if free else 0
    if 1 < parts <= len(samples):
        smaller.append(f"--shard 0/{parts} here and the other parts on other disks")
    return smaller or ["free some space"]


def bytes_needed(samples: Sequence[Sample], manifest: Manifest, shard_bytes: int) -> int:
    """Bytes on disk of `samples`."""
    if not samples:
        return 0
    tensors = manifest.states_bytes(sum(len(sample.input_ids) for sample in samples))
    shards = 1 + tensors // shard_bytes
    return tensors + len(samples) * _OVERHEAD_BYTES_PER_SAMPLE + shards * _OVERHEAD_BYTES_PER_SHARD


def _bytes_free(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _measured_rate(store: Path) -> float | None:
    """Bytes a second between the commits of neighbouring shards.

    The median is that of a running target even where runs stopped and went on days later.
    """
    shards = [os.stat(path) for path in sorted(store.glob("shard-*.safetensors"))]
    rates = [
        after.st_size / (after.st_mtime - before.st_mtime)
        for before, after in pairwise(shards)
        if after.st_mtime > before.st_mtime
    ]
    return median(rates) if rates else None
