"""Everything that one call of inspect finds out."""

import time
from dataclasses import dataclass
from pathlib import Path

from eagle3.inspection.compare import Comparison, compare_stores
from eagle3.inspection.histogram import Histogram, make_histogram
from eagle3.inspection.statistics import PointStatistics, choose_samples, measure_points
from eagle3.progress import BytesDone, Progress
from eagle3.store.index import IndexEntry
from eagle3.store.manifest import Manifest
from eagle3.store.merge import merge_parts
from eagle3.store.quarantine import count_faults
from eagle3.store.reader import StoreReader
from eagle3.store.row_format import width
from eagle3.store.sample import Sample
from eagle3.store.verify import verify_store


@dataclass(frozen=True)
class InspectionRequest:
    """One field an option of the command; all paths are absolute.

    `find` is an id or the beginning of one. Statistics are of about `max_tokens` tokens.
    """

    folder: Path
    merge: bool
    verify: bool
    find: str | None
    compare: Path | None
    max_tokens: int


@dataclass(frozen=True)
class Verification:
    """`damages` maps what is wrong to the ids of the samples concerned."""

    samples: int
    bytes: int
    seconds: float
    damages: dict[str, list[str]]


@dataclass(frozen=True)
class InspectionReport:
    """What is in the store; `sample` at `entry` is the one that was looked for, or the first.

    `held_out` counts those of the `samples`, and `held_out_tokens` those of the `tokens`, that
    must not be trained on. Where `verification` found damage, `points` is empty and `sample` is
    None.
    """

    folder: Path
    manifest: Manifest
    samples: int
    tokens: int
    shards: int
    bytes: int
    parts: int
    merged_parts: int
    is_complete: bool
    lengths: Histogram
    held_out: int
    held_out_tokens: int
    quarantined: dict[str, int]
    used: int
    points: list[PointStatistics]
    entry: IndexEntry | None
    sample: Sample | None
    verification: Verification | None
    comparison: Comparison | None


def inspect_store(request: InspectionRequest, progress: Progress) -> InspectionReport:
    """Reads, and with `merge` joins, the store.

    Raises StoreError where there is no such store, sample or other store, and where a sample
    that is to be shown is damaged; damage that `verify` finds is in the report.
    """
    merged_parts = 0
    if request.merge:
        with progress.waiting("joining the parts"):
            merged_parts = merge_parts(request.folder)
    store = StoreReader(request.folder)
    entry = _find(store, request.find)
    verification = _verify(store, progress) if request.verify else None
    damaged = bool(verification and verification.damages)
    ids = [entry.id] if request.find and entry else choose_samples(store, request.max_tokens)
    held_out = store.held_out
    return InspectionReport(
        folder=request.folder,
        manifest=store.manifest,
        samples=len(store.ids),
        tokens=store.tokens,
        shards=len(store.shards),
        bytes=store.tokens * store.manifest.states_bytes(1),
        parts=len(store.parts),
        merged_parts=merged_parts,
        is_complete=store.is_complete,
        lengths=make_histogram(entry.length for entry in store.entries.values()),
        held_out=len(held_out),
        held_out_tokens=sum(store.entries[sample_id].length for sample_id in held_out),
        quarantined=count_faults(store.quarantined.values()),
        used=len(store.used),
        points=[] if damaged else measure_points(store, ids),
        entry=entry,
        sample=store.read(entry.id)[0] if entry and not damaged else None,
        verification=verification,
        comparison=_compare(store, request.compare, progress) if request.compare else None,
    )


def _find(store: StoreReader, wanted: str | None) -> IndexEntry | None:
    if wanted is None:
        return next(iter(store.entries.values()), None)
    return store.entries[store.find(wanted)]


def _compare(store: StoreReader, other: Path, progress: Progress) -> Comparison:
    with progress.waiting("comparing the stores"):
        return compare_stores(store, StoreReader(other))


def _verify(store: StoreReader, progress: Progress) -> Verification:
    manifest = store.manifest
    row_bytes = len(manifest.capture_points) * width(manifest.dtype, manifest.hidden_size)
    total = store.tokens * row_bytes
    done = 0
    # Made here, so that the rate is that of verifying alone.
    on_bytes = BytesDone(progress, "verifying")

    def advance(size: int) -> None:
        nonlocal done
        done += size
        on_bytes(done, total)

    began = time.monotonic()
    damages = verify_store(store, advance)
    return Verification(len(store.ids), done, time.monotonic() - began, damages)
