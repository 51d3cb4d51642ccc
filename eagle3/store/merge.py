"""Joins the parts of a store into one."""

from collections import defaultdict
from pathlib import Path

from eagle3.errors import StoreError
from eagle3.store.index import INDEX, IndexEntry, read_index
from eagle3.store.manifest import MANIFEST
from eagle3.store.part import part_folders
from eagle3.store.quarantine import QUARANTINE, append_quarantine, read_quarantine
from eagle3.store.reader import StoreReader
from eagle3.store.used import USED, append_used, read_used
from eagle3.store.writer import StoreWriter


def merge_parts(folder: Path) -> int:
    """Moves the shards of all parts in `folder` into it, and returns how many parts there were.

    Nothing is copied where the file system has hard links. A kill loses nothing: the next call
    goes on. Raises StoreError, among others where a part is being written to.
    """
    parts = part_folders(folder)
    manifest = StoreReader(folder).manifest
    with StoreWriter(folder, manifest) as store:
        for part in parts:
            # A run that still writes to the part is found out here.
            with StoreWriter(part, manifest):
                _adopt(store, folder, part)
            _remove(part)
    return len(parts)


def _adopt(store: StoreWriter, folder: Path, part: Path) -> None:
    by_shard: dict[str, list[IndexEntry]] = defaultdict(list)
    used = read_used(part)
    for entry in read_index(part).values():
        if entry.id in used:
            continue
        by_shard[entry.shard].append(entry)
    for shard, entries in by_shard.items():
        if any(entry.id not in store.committed for entry in entries):
            store.adopt(part / shard, entries)
    known = read_quarantine(folder)
    news = [entry for key, entry in read_quarantine(part).items() if key not in known]
    if news:
        append_quarantine(folder, news)
    if used:
        append_used(folder, used.values())


def _remove(part: Path) -> None:
    """Removes the folder so that, at each moment, what is left of it is a store."""
    try:
        for name in (INDEX, QUARANTINE, USED):
            (part / name).unlink(missing_ok=True)
        for path in part.iterdir():
            if path.name != MANIFEST:
                path.unlink()
        (part / MANIFEST).unlink()
        part.rmdir()
    except OSError as error:
        raise StoreError(
            f"{part} is merged, but {error.filename} cannot be removed: {error.strerror}"
        ) from error
