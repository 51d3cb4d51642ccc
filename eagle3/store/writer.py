"""Writes samples with their states so that a kill at any moment loses nothing committed."""

import contextlib
import dataclasses
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import torch

from eagle3.errors import StoreError
from eagle3.store.durable import (
    PARTIAL,
    link_or_copy,
    locked,
    partial_path,
    sync_folder,
    write_file,
)
from eagle3.store.index import IndexEntry, IndexWriter
from eagle3.store.layout import journal_path, next_shard_number, shard_name
from eagle3.store.leftovers import shards_in_work, whole_samples
from eagle3.store.manifest import MANIFEST, Counts, Manifest, read_manifest
from eagle3.store.plan import check_folder, present_entries
from eagle3.store.quarantine import (
    QuarantineEntry,
    append_quarantine,
    count_faults,
    read_quarantine,
)
from eagle3.store.room import shard_sizes
from eagle3.store.sample import Sample
from eagle3.store.shard_writer import ShardWriter, cut_partial


class StoreWriter:
    """Writes to `folder`, shard by shard, as

        with StoreWriter(folder, manifest) as store:
            store.begin(samples)
            store.write(sample, hidden_states_TLH)  # for each of them
            store.commit()

    or, where others write the rows to the shard that `begin` returns, with `accept` in place of
    `write`. Several shards may be begun at once; they are committed in that order. One thread
    begins shards and sets samples aside while others write or accept, and one commits.

    Entering makes the folder or goes on in it (see plan_store), and commits what a killed run
    left whole. The index marks the samples whose ids are in `held_out`, also those that are there
    already; `manifest.dataset.held_out` speaks of the same ones. Leaving in the middle of a shard,
    as with an error, commits what is whole of it. One process at a time writes to a folder;
    commits do not rest on a lock, which only tells of a second one early. Every method raises
    StoreError.
    """

    def __init__(self, folder: Path, manifest: Manifest, held_out: Collection[str] = ()) -> None:
        self._folder = folder
        self._manifest = manifest
        self._held_out = held_out
        self._shards: list[ShardWriter] = []
        self._open = contextlib.ExitStack()

    def __enter__(self) -> "StoreWriter":
        with contextlib.ExitStack() as opened:
            with self._explained():
                self._folder.mkdir(parents=True, exist_ok=True)
                opened.enter_context(locked(self._folder))
                self._open_folder(opened)
                self._commit_leftovers()
                self._write_held_out()
            self._open = opened.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._open:
            if error is None:
                with self._explained():
                    self._leave()
            else:
                # The first error is the one to tell; what cannot be saved now, the next run saves.
                with contextlib.suppress(OSError, StoreError):
                    self._leave()

    @property
    def committed(self) -> dict[str, IndexEntry]:
        """The committed samples by id."""
        return self._index.entries

    def begin(self, samples: Sequence[Sample]) -> ShardWriter:
        """Plans a shard of `samples`, in this order, and makes its file."""
        manifest = self._manifest
        with self._explained():
            final = self._next_shard()
            shard = ShardWriter(
                final,
                samples,
                manifest.capture_points,
                manifest.hidden_size,
                manifest.dtype,
                self._held_out,
            )
        self._shards.append(shard)
        return shard

    def write(self, sample: Sample, hidden_states_TLH: torch.Tensor) -> None:
        """Writes bf16 [T, L, H] of `sample` to its shard. It does not count before commit."""
        with self._explained():
            self._awaiting(sample).write(sample, hidden_states_TLH)

    def written_states(self, sample: Sample) -> torch.Tensor:
        """bf16 [T, L, H] of `sample`, as others have written it to its shard."""
        with self._explained():
            return self._awaiting(sample).written_states(sample)

    def accept(self, sample: Sample) -> None:
        """Takes `sample` as whole: others have written each of its rows. See write."""
        with self._explained():
            self._awaiting(sample).accept(sample)

    def quarantine(self, sample: Sample, fault: str, detail: str) -> None:
        """Sets `sample` aside, at once and for good: its states are unfit."""
        with self._explained():
            self._awaiting(sample).set_aside(sample)
            append_quarantine(self._folder, [QuarantineEntry(sample.id, fault, detail)])

    def commit(self) -> None:
        """Makes the shard count that was begun first, and last: data, name, folder, index.

        StoreError where not every planned sample was written or set aside.
        """
        if not self._shards:
            raise StoreError("no shard was begun")
        shard = self._shards[0]
        if shard.unfinished:
            raise StoreError(
                f"sample {shard.unfinished[0]} was not written ({len(shard.unfinished)} of "
                f"{shard.final.name} were not); run the same command again"
            )
        with self._explained():
            entries = shard.finish()
            if entries:
                self._commit(shard.final, entries)
            else:
                self._drop(shard.final)
            self._shards.remove(shard)
            shard.close()

    def adopt(self, shard: Path, entries: Iterable[IndexEntry]) -> None:
        """Takes over a committed shard of another folder, with its `entries`, under a new name."""
        with self._explained():
            final = self._next_shard()
            renamed = [dataclasses.replace(entry, shard=final.name) for entry in entries]
            lines = b"".join(entry.to_line() for entry in renamed)
            write_file(journal_path(final), lines)
            link_or_copy(shard, partial_path(final))
            self._commit(final, renamed)

    def _next_shard(self) -> Path:
        """A name that no shard has or had."""
        while True:
            final = self._folder / shard_name(self._number)
            self._number += 1
            # Where there are no locks, a second run may take numbers, too.
            if not final.exists() and not partial_path(final).exists():
                return final

    def _awaiting(self, sample: Sample) -> ShardWriter:
        for shard in tuple(self._shards):
            if shard.awaits(sample):
                return shard
        raise StoreError(f"sample {sample.id} is not awaited in any shard that was begun")

    def _commit(self, final: Path, entries: list[IndexEntry]) -> None:
        if partial_path(final).exists():
            partial_path(final).rename(final)
        # The name must be on disk before the index speaks of it.
        sync_folder(self._folder)
        news = [entry for entry in entries if self._index.entries.get(entry.id) != entry]
        if news:
            self._index.append(news)
        journal_path(final).unlink()

    def _drop(self, final: Path) -> None:
        partial_path(final).unlink(missing_ok=True)
        journal_path(final).unlink(missing_ok=True)

    def _leave(self) -> None:
        while self._shards:
            self._shards.pop().close()
        self._commit_leftovers()
        self._write_counts()

    def _commit_leftovers(self) -> None:
        for final in shards_in_work(self._folder):
            entries = list(map(self._marked, whole_samples(final)))
            if not entries:
                self._drop(final)
                continue
            partial = partial_path(final)
            if partial.exists():
                cut_partial(partial, entries)
            self._commit(final, entries)
        for partial in self._folder.glob(f"*{PARTIAL}"):
            partial.unlink()

    def _write_counts(self) -> None:
        names = dict.fromkeys(entry.shard for entry in self._index.entries.values())
        shards = shard_sizes(self._folder, names)
        entries = [entry for entry in self._index.entries.values() if shards[entry.shard]]
        sizes = list(filter(None, shards.values()))
        counts = Counts(
            samples=len(entries),
            tokens=sum(entry.length for entry in entries),
            shards=len(sizes),
            bytes=sum(sizes),
            quarantined=count_faults(read_quarantine(self._folder).values()),
        )
        manifest = read_manifest(self._folder)
        if counts != manifest.counts:
            counted = dataclasses.replace(manifest, counts=counts)
            write_file(self._folder / MANIFEST, counted.to_json().encode())
            sync_folder(self._folder)

    def _open_folder(self, opened: contextlib.ExitStack) -> None:
        """Begins with what is there; no file is read twice, since some have millions of lines."""
        folder = self._folder
        check_folder(folder, self._manifest)
        if not (folder / MANIFEST).exists():
            uncounted = dataclasses.replace(self._manifest, counts=None)
            write_file(folder / MANIFEST, uncounted.to_json().encode())
        # Files before used samples: what is removed is noted before.
        names = [path.name for path in folder.iterdir()]
        self._index = IndexWriter(folder)
        opened.callback(self._index.close)
        present, used = present_entries(folder, self._index.entries)
        present = {key: self._marked(entry) for key, entry in present.items()}
        if self._index.entries != present:
            # Shards were removed; until their samples come again, the index shall not tell of them.
            # Or what is there was written before anybody said what is held out.
            self._index.replace(present)
        self._number = next_shard_number([*names, *(entry.shard for entry in used.values())])
        sync_folder(folder)
        sync_folder(folder.parent)

    def _marked(self, entry: IndexEntry) -> IndexEntry:
        if entry.held_out or entry.id not in self._held_out:
            return entry
        return dataclasses.replace(entry, held_out=True)

    def _write_held_out(self) -> None:
        """Lets the manifest say what is held out, once the index does."""
        there, held_out = read_manifest(self._folder), self._manifest.dataset.held_out
        if there.dataset.held_out != held_out:
            marked = there.with_held_out(held_out)
            write_file(self._folder / MANIFEST, marked.to_json().encode())

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"cannot write to {self._folder}: {error.strerror}; what was committed is safe"
            ) from error
