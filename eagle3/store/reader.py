"""Reads a store, and believes nothing that it has not checked."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from eagle3.errors import StoreError
from eagle3.store.checksum import sample_checksum
from eagle3.store.encoding import decode
from eagle3.store.grown import GrownFile
from eagle3.store.index import INDEX, IndexEntry, read_index
from eagle3.store.manifest import MANIFEST, Manifest, read_manifest
from eagle3.store.part import part_folders
from eagle3.store.quarantine import QUARANTINE, QuarantineEntry, read_quarantine
from eagle3.store.room import shard_sizes
from eagle3.store.sample import Sample
from eagle3.store.shard import Shard
from eagle3.store.used import USED, read_used

# A process may have 65,530 mappings, and a store of 300 TB has 300,000 shards.
_OPEN_SHARDS = 256
_FILES = (MANIFEST, INDEX, QUARANTINE, USED)


class StoreReader:
    """The committed samples of the store in `folder`, those of all parts in it included.

    Shards are mapped into memory when a sample of theirs is read. Every method raises
    StoreError.
    """

    parts: tuple[str, ...]
    manifest: Manifest
    entries: Mapping[str, IndexEntry]
    quarantined: Mapping[str, QuarantineEntry]
    used: Mapping[str, IndexEntry]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries = {}
        self._state: tuple[object, ...] | None = None
        self._files: dict[tuple[str, str], GrownFile] = {}
        self.refresh()
        self._shards: OrderedDict[str, Shard] = OrderedDict()

    def refresh(self) -> tuple[str, ...]:
        """Sees what was committed since it last looked, as while an extraction still runs.

        Returns the ids that are new, in the order in which they were committed. Of the index,
        what was added is read. `is_complete` then tells whether more is to come.
        """
        parts = tuple(part.name for part in part_folders(self.folder))
        state = tuple(
            _state_of(self.folder / part / name) for part in ("", *parts) for name in _FILES
        )
        if state == self._state:
            return ()
        self.manifest = _common_manifest(self.folder, parts)
        indexed = self._read_entries(parts, INDEX, read_index)
        self.used = self._read_entries(parts, USED, read_used)
        entries = {key: entry for key, entry in indexed.items() if key not in self.used}
        new = tuple(sample_id for sample_id in entries if sample_id not in self.entries)
        self.parts, self.entries, self._state = parts, entries, state
        self.quarantined = {
            entry.id: entry
            for part in ("", *parts)
            for entry in read_quarantine(self.folder / part).values()
        }
        return new

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the committed samples, in the order in which they were committed."""
        return tuple(self.entries)

    @property
    def held_out(self) -> tuple[str, ...]:
        """The ids of those among them that must not be trained on."""
        return tuple(entry.id for entry in self.entries.values() if entry.held_out)

    @property
    def shards(self) -> tuple[str, ...]:
        """The shards of the committed samples, relative to the folder."""
        return tuple(dict.fromkeys(entry.shard for entry in self.entries.values()))

    @property
    def tokens(self) -> int:
        return sum(entry.length for entry in self.entries.values())

    @property
    def size(self) -> int:
        """Bytes of the committed samples' shards, without those that are removed meanwhile."""
        try:
            return sum(shard_sizes(self.folder, self.shards).values())
        except OSError as error:
            raise StoreError(f"cannot read {error.filename}: {error.strerror}") from error

    @property
    def is_complete(self) -> bool:
        """Whether every sample of the dataset is committed, set aside as unfit, or used."""
        done = self.entries.keys() | self.quarantined.keys() | self.used.keys()
        return len(done) == self.manifest.dataset.samples

    def find(self, beginning: str) -> str:
        """The id that begins so; StoreError unless there is exactly one."""
        if beginning in self.entries:
            return beginning
        found = [sample_id for sample_id in self.entries if sample_id.startswith(beginning)]
        if len(found) != 1:
            aside = [entry for key, entry in self.quarantined.items() if key.startswith(beginning)]
            if aside and not found:
                raise StoreError(f"sample {aside[0].id} was set aside: {aside[0].detail}")
            raise StoreError(
                f"{self.folder} holds {len(found) or 'no'} samples whose ids begin with "
                f"{beginning}; give {'more of' if found else 'another'} id"
            )
        return found[0]

    def read(self, sample_id: str) -> tuple[Sample, torch.Tensor]:
        """A sample and its hidden states, bf16 [T, L, H], L as in the manifest's capture points.

        Size of the shard, place, checksum and id are checked. The states are the mapped file, of
        which nothing is copied unless they are encoded; writing to them changes nothing on disk.
        """
        sample, rows = self.read_encoded(sample_id)
        return sample, decode(rows, self.manifest.dtype)

    def read_encoded(self, sample_id: str) -> tuple[Sample, torch.Tensor]:
        """The same, with the rows as they lie in the shard (see encoding.py); nothing is copied."""
        entry = self.entries.get(sample_id)
        if entry is None:
            raise StoreError(f"{self.folder} holds no sample {sample_id}")
        shard = self.shard(entry.shard)
        if not shard.holds(entry.offset, entry.length):
            raise self._damaged(entry, "its rows are not those of a sample")
        sample = shard.sample(entry.offset, entry.length)
        rows = shard.rows(entry.offset, entry.length)
        if sample_checksum(sample, rows) != entry.checksum:
            raise self._damaged(entry, "its checksum is not the committed one")
        if sample.id != sample_id:
            raise self._damaged(entry, "it is another sample than its id says")
        return sample, shard.encoded_states(entry.offset, entry.length)

    def shard(self, name: str) -> Shard:
        """The shard, one of `shards`, with its size and header checked."""
        shard = self._shards.pop(name, None) or self._open_shard(name)
        self._shards[name] = shard
        if len(self._shards) > _OPEN_SHARDS:
            self._shards.popitem(last=False)
        return shard

    def forget(self, name: str) -> None:
        """Lets go of a shard: the space of a removed file is free once nobody has it mapped."""
        self._shards.pop(name, None)

    def _open_shard(self, name: str) -> Shard:
        shard = Shard(self.folder / name)
        layout, manifest = shard.layout, self.manifest
        shape = (manifest.capture_points, manifest.hidden_size, manifest.dtype)
        if (layout.capture_points, layout.hidden_size, layout.dtype) != shape:
            raise StoreError(
                f"{shard.path} holds other states than {MANIFEST} says; remove it and run "
                "extract again"
            )
        return shard

    def _read_entries(
        self, parts: tuple[str, ...], name: str, read: Callable[[Path], dict[str, IndexEntry]]
    ) -> dict[str, IndexEntry]:
        entries: dict[str, IndexEntry] = {}
        for part in ("", *parts):
            if (part, name) not in self._files:
                self._files[part, name] = GrownFile(self.folder, part, name, read)
            # A sample that a part and the whole both have is there once.
            for sample_id, entry in self._files[part, name].entries().items():
                entries.setdefault(sample_id, entry)
        return entries

    def _damaged(self, entry: IndexEntry, how: str) -> StoreError:
        return StoreError(
            f"sample {entry.id} (rows {entry.offset:,} to {entry.offset + entry.length:,} of "
            f"{self.folder / entry.shard}) is damaged: {how}; remove the shard and run extract "
            "again"
        )


def _state_of(path: Path) -> object:
    """Differs when the file has changed."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _common_manifest(folder: Path, parts: tuple[str, ...]) -> Manifest:
    stores = [store for store in ("", *parts) if (folder / store / MANIFEST).exists()]
    manifest = read_manifest(folder / stores[0] if stores else folder)
    for store in stores[1:]:
        difference = manifest.difference(read_manifest(folder / store))
        if difference:
            raise StoreError(
                f"{folder / store} does not belong with {folder / stores[0]}: {difference}; "
                "move it elsewhere"
            )
    return manifest
