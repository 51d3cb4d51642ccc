"""Learning from a store that still grows: one pass, in the order of its commits."""

import itertools
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import torch

from eagle3.errors import InputError, StoreError
from eagle3.progress import Progress
from eagle3.store.index import IndexEntry
from eagle3.store.layout import journal_path
from eagle3.store.manifest import MANIFEST
from eagle3.store.part import part_folders
from eagle3.store.room import someone_waits
from eagle3.store.used import remove_shards
from eagle3.training.commit_order import CommitOrder, Event, Mark
from eagle3.training.distributed import Processes
from eagle3.training.packing import Packed, pack
from eagle3.training.plan import TrainingPlan
from eagle3.training.samples import SampleSet
from eagle3.training.stop import StopRequest

# What lies in open batches waits for more, and its shards with it; a few keep padding at some 3 %.
_OPEN_BATCHES = 8
_SECONDS_BETWEEN_LOOKS = 0.5
# A network file system may show late what another machine has written.
_SECONDS_UNTIL_SEEN = 60.0


class StalledError(StoreError):
    """Nothing was committed for too long, though not everything is there."""


class StoppedWaitingError(Exception):
    """A process was asked to stop while all of them waited for samples."""


class Following:
    """The steps of one pass over the growing store of `plan`, the same in all `processes`.

    All that decides a batch is an event in `order`, on disk before the batch is handed out: so a
    run that was killed sees the same batches again, whatever came meanwhile and whatever was
    removed. The first process looks at the store, and tells the others. Samples that are held out
    are events, too, of which no batch has anything.

    With `--delete-after-use` a shard is removed once a checkpoint has all its rows behind it; rows
    of samples that are held out are never waited for.
    Where extraction waits for room and nothing is left to read, open batches are closed as they
    are, so that every shard can be let go of.
    """

    def __init__(
        self, plan: TrainingPlan, order: CommitOrder, processes: Processes, progress: Progress
    ) -> None:
        self._plan = plan
        self._order = order
        self._processes = processes
        self._progress = progress
        self._store = plan.training.store
        self._dataset = self._store.manifest.dataset
        self._timeout_s = plan.config.data.follow_timeout
        self._validation = frozenset(plan.validation.ids)
        self._events: list[Event] = []
        self._taken = 0  # of the events
        self._known: set[str] = set()
        self._entries: list[IndexEntry] = []
        self._ids: list[str] = []
        self._lengths: list[int] = []
        # Rows of each shard that no checkpoint has behind it, and those that each step uses.
        self._unused: Counter[str] = Counter()
        self._in_steps: deque[tuple[int, Counter[str]]] = deque()
        # Grows while `steps` goes on; documents name samples by their numbers in it.
        self.samples = SampleSet(self._store, self._ids)
        self._add(processes.tell(order.read() if processes.is_first else []))

    def steps(self, first: int, stop: StopRequest) -> Iterator[tuple[Packed, ...] | None]:
        """The batches of each step from number `first` on; waits where none is there yet.

        None says that extraction waits for room: a checkpoint and `let_go` make it. Raises
        StalledError, StoppedWaitingError, and InputError where there is nothing to learn from.
        """
        number = 0
        for step in self._all_steps(stop):
            if step is not None:
                rows: Counter[str] = Counter()
                for document in itertools.chain.from_iterable(step):
                    rows[self._entries[document.sample].shard] += document.length
                self._in_steps.append((number, rows))
                number += 1
            if number > first or (step is None and number == first):
                yield step
        if not number:
            why = f": all {len(self._known):,} that came are held out" if self._known else ""
            raise InputError(f"no samples to train on are left in {self._store.folder}{why}")

    def let_go(self, steps: int) -> None:
        """Removes the shards that the first `steps` steps have used up; a checkpoint has them."""
        while self._in_steps and self._in_steps[0][0] < steps:
            self._unused.subtract(self._in_steps.popleft()[1])
        if not self._removes:
            return
        used_up = {shard for shard, rows in self._unused.items() if not rows}
        if self._processes.is_first:
            used_up &= self._removable()
            remove_shards(
                self._store.folder,
                (
                    event
                    for event in self._events
                    if isinstance(event, IndexEntry) and event.shard in used_up
                ),
            )
        for shard in used_up:
            # All processes: mapped, it would keep its space.
            self._store.forget(shard)
            del self._unused[shard]

    def _removable(self) -> set[str]:
        """Shards whose commit has ended, and of which every sample is known here."""
        ids: dict[str, set[str]] = defaultdict(set)
        shards = {
            shard for shard in self._unused if not journal_path(self._store.folder / shard).exists()
        }
        # Only now: the index may have been read in the middle of a commit.
        self._store.refresh()
        for entry in self._store.entries.values():
            ids[entry.shard].add(entry.id)
        return {shard for shard in shards if ids[shard] <= self._known}

    def _all_steps(self, stop: StopRequest) -> Iterator[tuple[Packed, ...] | None]:
        size = self._plan.batches_per_step
        mark = Mark.WAIT
        while mark is Mark.WAIT:
            marks: list[Mark] = []
            order = self._samples_until(marks, stop)
            batches = pack(order, self._lengths, self._plan.capacity, _OPEN_BATCHES)
            for step in itertools.batched(batches, size, strict=False):
                yield step + ((),) * (size - len(step))
            [mark] = marks
            if mark is Mark.WAIT:
                yield None

    def _samples_until(self, marks: list[Mark], stop: StopRequest) -> Iterator[int]:
        """The numbers of the samples that come before the next mark, which is put into `marks`."""
        while True:
            if self._taken == len(self._events):
                self._wait(stop)
            event = self._events[self._taken]
            self._taken += 1
            if isinstance(event, Mark):
                marks.append(event)
                return
            if event.held_out:
                continue
            self._plan.check_length(event.length)
            self._entries.append(event)
            self._ids.append(event.id)
            self._lengths.append(event.length)
            yield len(self._ids) - 1

    def _wait(self, stop: StopRequest) -> None:
        """Waits, together with all processes, for the next events."""
        began = time.monotonic()
        with ExitStack() as waiting:
            for look in itertools.count():
                events = self._processes.tell(self._look() if self._processes.is_first else [])
                stopping = torch.tensor([stop.heard is not None], dtype=torch.int32)
                if self._processes.sum(stopping).item():
                    raise StoppedWaitingError
                if events:
                    break
                if self._processes.tell(time.monotonic() - began > self._timeout_s):
                    raise StalledError(self._describe_stall())
                if look == 0 and self._processes.is_first:
                    waiting.enter_context(self._progress.waiting(self._describe_wait()))
                time.sleep(_SECONDS_BETWEEN_LOOKS)
        self._add(events)
        if not self._processes.is_first:
            self._see(events)

    def _add(self, events: list[Event]) -> None:
        self._events += events
        for event in events:
            if isinstance(event, IndexEntry):
                self._known.add(event.id)
                self._unused[event.shard] += 0 if event.held_out else event.length

    def _look(self) -> list[Event]:
        """What is new, in the first process, and noted; nothing where nothing is."""
        # Asked first: what was committed before extraction began to wait is seen then.
        waits = self._removes and self._extraction_waits
        self._store.refresh()
        if self._store.manifest.dataset != self._dataset:
            raise StoreError(
                f"{self._store.folder} says only now which samples are held out, and some of them "
                "may have been trained on: begin again with another --out"
            )
        events: list[Event] = [
            replace(entry, held_out=entry.held_out or entry.id in self._validation)
            for entry in self._store.entries.values()
            if entry.id not in self._known
        ]
        if not events and self._store.is_complete:
            events = [Mark.END]
        elif not events and waits and self._samples_since_the_last_mark:
            events = [Mark.WAIT]
        if events:
            self._order.append(events)
        return events

    def _see(self, events: list[Event]) -> None:
        """Returns when this process's store shows what the first one has seen, too."""
        ids = {event.id for event in events if isinstance(event, IndexEntry)}
        deadline = time.monotonic() + _SECONDS_UNTIL_SEEN
        self._store.refresh()
        while not ids <= self._store.entries.keys():
            if time.monotonic() > deadline:
                raise StoreError(
                    f"{self._store.folder} shows other samples here than to the first process; do "
                    "all machines see the same folder?"
                )
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            self._store.refresh()

    @property
    def _removes(self) -> bool:
        return self._plan.config.data.delete_after_use

    @property
    def _extraction_waits(self) -> bool:
        folder = self._store.folder
        return someone_waits([folder, *part_folders(folder)])

    @property
    def _samples_since_the_last_mark(self) -> bool:
        return bool(self._events) and isinstance(self._events[-1], IndexEntry)

    def _describe_wait(self) -> str:
        whole = self._store.manifest.dataset.samples
        line = f"all {len(self._known):,} of {whole:,} samples are taken: waiting for extraction"
        if self._extraction_waits and not self._removes:
            return f"{line}, which waits for room; --delete-after-use would make it"
        return line

    def _describe_stall(self) -> str:
        whole = self._store.manifest.dataset.samples
        return (
            f"nothing was committed to {self._store.folder} for {self._timeout_s:,.0f} s, and only "
            f"{len(self._known):,} of {whole:,} samples came: see whether extract still runs; the "
            "same command goes on from here"
        )


def await_store(folder: Path, timeout_s: float, progress: Progress) -> None:
    """Returns when extraction has begun a store in `folder`. Raises StalledError."""

    def has_begun() -> bool:
        return any((store / MANIFEST).exists() for store in (folder, *part_folders(folder)))

    if has_begun():
        return
    began = time.monotonic()
    with progress.waiting(f"waiting for extraction to begin {folder}"):
        while not has_begun():
            if time.monotonic() - began > timeout_s:
                raise StalledError(
                    f"no states came to {folder} for {timeout_s:,.0f} s; start extract"
                )
            time.sleep(_SECONDS_BETWEEN_LOOKS)
