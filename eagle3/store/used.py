"""Samples that a training has used, and whose shards were then removed to make room.

They are done: an extraction does not make them again. To have them again, remove the file.
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path, PurePath

from eagle3.errors import StoreError
from eagle3.store.durable import append_lines, sync_folder
from eagle3.store.index import IndexEntry, parse_entry

USED = "used.jsonl"


def read_used(folder: Path) -> dict[str, IndexEntry]:
    """The used samples by id, with the place that they had. StoreError where it is damaged.

    What removes shards writes here first. So whoever finds a shard missing, and then reads this,
    knows whether it was used.
    """
    path = folder / USED
    try:
        content = path.read_bytes()
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        return {entry.id: entry for entry in map(parse_entry, lines)}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{path} is damaged ({error}); remove it, and its samples are extracted again"
        ) from error


def append_used(folder: Path, entries: Iterable[IndexEntry]) -> None:
    """Notes samples as used, at once and for good. Raises OSError."""
    append_lines(folder / USED, b"".join(entry.to_line() for entry in entries))


def remove_shards(store: Path, entries: Iterable[IndexEntry]) -> None:
    """Notes the samples of `entries`, which are all of their shards, as used; removes the shards.

    A kill between the two leaves files without samples; the next call takes them, too, and notes
    them again. What is gone already was noted, and to read all notes would take longer each time.
    Raises StoreError.
    """
    by_folder: dict[PurePath, dict[str, list[IndexEntry]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        by_folder[PurePath(entry.shard).parent][entry.shard].append(entry)
    try:
        for part, by_shard in by_folder.items():
            shards = [shard for shard in by_shard if (store / shard).exists()]
            if not shards:
                continue
            used = (entry.outside() for shard in shards for entry in by_shard[shard])
            append_used(store / part, used)
            for shard in shards:
                (store / shard).unlink(missing_ok=True)
            sync_folder(store / part)
    except OSError as error:
        raise StoreError(f"cannot remove used states from {store}: {error.strerror}") from error
