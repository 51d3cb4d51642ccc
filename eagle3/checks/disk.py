"""Whether the states fit on the disk, and how long writing them takes at least."""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from eagle3.checks.finding import Finding
from eagle3.checks.situation import Situation
from eagle3.errors import StoreError
from eagle3.extraction.size import readable_size
from eagle3.progress import as_clock

_BLOCK = bytes(8 * 1024 * 1024)
_SECONDS, _MOST_BYTES = 0.3, 32 * len(_BLOCK)
_SCARCE = 0.9


def check_disk(situation: Situation) -> Iterator[Finding]:
    """Bytes needed and free, and the time: of earlier runs, else of a trial without a trace."""
    disk, store = situation.plan.disk, situation.plan.store
    if not situation.plan.missing:
        yield Finding("disk", "ok", "nothing to write: all samples are there")
        return
    rate = disk.bytes_per_s or measure_write_rate(store)
    source = "as the shards before" if disk.bytes_per_s else "as the disk takes it"
    found = (
        f"{readable_size(disk.needed)} needed, {readable_size(disk.free)} free; "
        f"{as_clock(disk.needed / rate)} at {readable_size(rate)}/s, {source}"
    )
    if disk.needed > _SCARCE * disk.free:
        fix = "see that nothing else writes there, or take fewer --layers"
        yield Finding("disk", "warn", f"{found}: little is left", fix)
    else:
        yield Finding("disk", "ok", found)


def measure_write_rate(folder: Path) -> float:
    """Bytes a second that `folder`, or the nearest one above it, takes for good.

    Writes for a part of a second to a file that has no name. Raises StoreError.
    """
    while not folder.exists():
        folder = folder.parent
    written = 0
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            began = time.monotonic()
            while written < _MOST_BYTES and time.monotonic() - began < _SECONDS:
                written += file.write(_BLOCK)
                os.fsync(file.fileno())
            return written / (time.monotonic() - began)
    except OSError as error:
        raise StoreError(
            f"cannot write to {folder}: {error.strerror}; give another --out"
        ) from error
