"""What a folder already holds of a run, found out without writing to it."""

import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from eagle3.errors import StoreError
from eagle3.store.durable import PARTIAL
from eagle3.store.index import IndexEntry, read_index
from eagle3.store.leftovers import shards_in_work, whole_samples
from eagle3.store.manifest import MANIFEST, Manifest, read_manifest
from eagle3.store.part import Part, part_folders
from eagle3.store.quarantine import QuarantineEntry, read_quarantine
from eagle3.store.room import LOOKS_AT_ONCE
from eagle3.store.shard import Shard
from eagle3.store.used import read_used

# Begins the name of a file that only tries the folder. Where a file system cannot make one without
# a name (FUSE, some network ones), a kill at that moment leaves it.
_PROBE = ".eagle3-probe-"


@dataclass
class Holdings:
    """`committed`, `quarantined` and `used` samples by id, and those that a killed run left whole.

    Used samples that the index names are among the committed ones, too. The leftovers are
    committed as soon as a StoreWriter opens the folder.
    """

    committed: dict[str, IndexEntry] = field(default_factory=dict)
    quarantined: dict[str, QuarantineEntry] = field(default_factory=dict)
    used: dict[str, IndexEntry] = field(default_factory=dict)
    leftovers: dict[str, IndexEntry] = field(default_factory=dict)

    def __contains__(self, sample_id: str) -> bool:
        found = (self.committed, self.quarantined, self.used, self.leftovers)
        return any(sample_id in samples for samples in found)


def plan_store(folder: Path, manifest: Manifest, part: Part | None = None) -> Holdings:
    """What is done in `folder` and all parts in it; nothing where it is empty or missing.

    Leftovers are those of `part`, the others may belong to runs that are alive. A folder holds
    one run: one target, one dataset, one set of capture points, one stack. Raises StoreError
    where `folder` holds anything else, where a committed shard is damaged, and where nothing
    could be written.
    """
    check_folder(folder, manifest)
    holdings = Holdings()
    if not folder.exists():
        return holdings
    for store in (folder, *part_folders(folder)):
        present, used = present_entries(store, read_index(store))
        holdings.committed |= present
        holdings.used |= used
        holdings.quarantined |= read_quarantine(store)
    for shard in shards_in_work((part or Part()).folder(folder)):
        holdings.leftovers |= {entry.id: entry for entry in whole_samples(shard)}
    return holdings


def check_folder(folder: Path, manifest: Manifest) -> None:
    """Raises StoreError where the run of `manifest` may not or cannot write to `folder`."""
    _check_writable(folder)
    if not folder.exists():
        return
    parts = part_folders(folder)
    _check_nothing_else_is_there(folder, parts)
    for store in (folder, *parts):
        if (store / MANIFEST).exists():
            _check_same_run(store, manifest)


def present_entries(
    folder: Path, entries: Mapping[str, IndexEntry]
) -> tuple[dict[str, IndexEntry], dict[str, IndexEntry]]:
    """`entries`, the index, without those of removed shards that were not used; the used samples.

    StoreError where a shard is damaged.
    """
    shards = list(dict.fromkeys(entry.shard for entry in entries.values()))
    with ThreadPoolExecutor(LOOKS_AT_ONCE) as threads:
        there = threads.map(_is_there, (folder / name for name in shards))
        missing = {name for name, found in zip(shards, there, strict=True) if not found}
    used = read_used(folder)
    present = {
        key: entry for key, entry in entries.items() if entry.shard not in missing or key in used
    }
    return present, used


def _is_there(path: Path) -> bool:
    """Whether there is a whole shard. StoreError where it is damaged."""
    if not path.exists():
        return False
    try:
        Shard(path)
    except StoreError:
        # Training may have used and removed it between the two.
        if path.exists():
            raise
        return False
    return True


def _check_nothing_else_is_there(folder: Path, parts: list[Path]) -> None:
    if (folder / MANIFEST).exists():
        return
    ours = {MANIFEST + PARTIAL, *(part.name for part in parts)}
    others = [
        path
        for path in folder.iterdir()
        if path.name not in ours and not path.name.startswith(_PROBE)
    ]
    if others:
        raise StoreError(
            f"{folder} is not empty and holds no states ({others[0].name}); "
            "give another folder with --out"
        )


def can_mark(folder: Path, part: Part) -> bool:
    """Whether samples that are held out can be marked in all of `folder` by a run of `part`.

    It marks what lies where it writes itself; not what other parts were begun with.
    """
    own = part.folder(folder)
    others = [store for store in (folder, *part_folders(folder)) if store != own]
    return all(
        read_manifest(store).dataset.held_out is not None
        for store in others
        if (store / MANIFEST).exists()
    )


def _check_same_run(store: Path, manifest: Manifest) -> None:
    there = read_manifest(store)
    if there.dataset.held_out is None:
        # It was begun before anybody said what is held out; see StoreWriter.
        manifest = manifest.with_held_out(None)
    difference = manifest.difference(there)
    if difference:
        raise StoreError(
            f"{store} holds another run: {difference}; give another folder with --out, "
            "or remove that one"
        )


def _check_writable(folder: Path) -> None:
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise StoreError(f"{existing} is a file, not a folder; give another --out")
    try:
        # Permission bits do not tell of a read-only mount or of the rights of root.
        tempfile.TemporaryFile(prefix=_PROBE, dir=existing).close()
    except OSError as error:
        raise StoreError(
            f"cannot write to {existing}: {error.strerror}; give another --out"
        ) from error
