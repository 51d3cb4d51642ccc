"""What a run that was killed had written of a shard that it could not commit."""

from collections.abc import Iterator
from pathlib import Path

from eagle3.errors import StoreError
from eagle3.store.checksum import sample_checksum
from eagle3.store.durable import partial_path
from eagle3.store.index import IndexEntry, parse_entry
from eagle3.store.layout import journal_path
from eagle3.store.shard import Shard


def shards_in_work(folder: Path) -> list[Path]:
    """The shards, by their final names, of which a journal was left in `folder`."""
    return [path.with_suffix(".safetensors") for path in sorted(folder.glob("shard-*.journal"))]


def whole_samples(shard: Path) -> list[IndexEntry]:
    """The samples of a shard in work that were accepted and whose bytes are all there.

    Nothing of it was synced, so after a power cut the journal can tell of rows that never
    reached the disk: only what meets its checksum counts.
    """
    partial = partial_path(shard)
    try:
        written = Shard(partial if partial.exists() else shard)
    except StoreError:
        return []
    return [entry for entry in _read_journal(shard) if _is_whole(written, entry)]


def _read_journal(shard: Path) -> Iterator[IndexEntry]:
    content = journal_path(shard).read_bytes()
    for line in content[: content.rfind(b"\n") + 1].splitlines():
        try:
            entry = parse_entry(line)
        except (ValueError, TypeError, AttributeError):
            return
        if entry.shard == shard.name:
            yield entry


def _is_whole(shard: Shard, entry: IndexEntry) -> bool:
    if not shard.holds(entry.offset, entry.length):
        return False
    sample = shard.sample(entry.offset, entry.length)
    checksum = sample_checksum(sample, shard.rows(entry.offset, entry.length))
    return sample.id == entry.id and checksum == entry.checksum
