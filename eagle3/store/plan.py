"""What a folder already holds of a run, found out without writing to it."""

import tempfile
from pathlib import Path

from eagle3.errors import StoreError
from eagle3.store.durable import PARTIAL
from eagle3.store.index import IndexEntry, read_index
from eagle3.store.layout import sample_path
from eagle3.store.manifest import MANIFEST, Manifest, read_manifest


def plan_store(folder: Path, manifest: Manifest) -> dict[str, IndexEntry]:
    """The samples that are committed in `folder`, by id; none where it is empty or missing.

    A folder holds one run: one target, one dataset, one set of capture points, one stack.
    Raises StoreError where `folder` holds anything else, where a committed file has the wrong
    size, and where nothing could be written.
    """
    _check_writable(folder)
    if not folder.exists():
        return {}
    if not (folder / MANIFEST).exists():
        others = [path for path in folder.iterdir() if path.name != MANIFEST + PARTIAL]
        if others:
            raise StoreError(
                f"{folder} is not empty and holds no states ({others[0].name}); "
                "give another folder with --out"
            )
        return {}
    difference = manifest.difference(read_manifest(folder))
    if difference:
        raise StoreError(
            f"{folder} holds another run: {difference}; give another folder with --out, "
            "or remove that one"
        )
    return {entry.id: entry for entry in read_index(folder).values() if _is_present(folder, entry)}


def _check_writable(folder: Path) -> None:
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise StoreError(f"{existing} is a file, not a folder; give another --out")
    try:
        # Permission bits do not tell of a read-only mount or of the rights of root.
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise StoreError(
            f"cannot write to {existing}: {error.strerror}; give another --out"
        ) from error


def _is_present(folder: Path, entry: IndexEntry) -> bool:
    path = sample_path(folder, entry.id)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return False
    if size != entry.size:
        raise StoreError(
            f"{path} is damaged ({size:,} bytes, {entry.size:,} were committed); "
            "remove it and run the same command again"
        )
    return True
