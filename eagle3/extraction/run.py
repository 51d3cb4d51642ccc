"""Runs samples through the target and commits what comes out, shard by shard."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import batched, zip_longest
from typing import Protocol

import torch

from eagle3.engine.prefill import Prompt
from eagle3.errors import EngineError
from eagle3.extraction.groups import fill_groups
from eagle3.extraction.request import OnBad
from eagle3.extraction.states import Fault, find_faults
from eagle3.store.manifest import Manifest
from eagle3.store.sample import Sample
from eagle3.store.writer import StoreWriter

# A few unfit samples are an accident; more of them, and a larger share, are a broken target.
_MOST_UNFIT_SAMPLES = 20
_LARGEST_UNFIT_SHARE = 0.1

# File systems let one thread at a time write to a file, so there are as many files as writers.
_SHARDS_AT_ONCE = 4
# Each checks 3 to 7 GB/s (docs/extract.md), and a group of so many bytes at once.
_CHECKING_THREADS = 4
CHECKED_BYTES = 64 * 1024 * 1024
# So many groups of samples may wait to be checked, and shards to be synced; then the target waits.
_MOST_CHECKS = 32
_MOST_COMMITS = 2


# Finds the faults of a batch of samples, as find_faults does.
Detectors = Callable[
    [Sequence[Sequence[int]], Sequence[torch.Tensor], tuple[int, ...]], list[Fault | None]
]


class Runner(Protocol):
    """What a run needs of the engine."""

    def run(self, prompts: Iterable[Prompt]) -> Iterator[list[Prompt]]: ...


@dataclass(frozen=True)
class Rules:
    """`places` tells where in the data a sample, by its id, stood; the rest are options."""

    places: Mapping[str, str]
    shard_bytes: int
    on_bad: OnBad


def run_extraction(
    samples: Iterable[Sample],
    manifest: Manifest,
    rules: Rules,
    engine: Runner,
    store: StoreWriter,
    on_done: Callable[[Sequence[Sample]], None],
    detectors: Detectors = find_faults,
) -> None:
    """Extracts `samples` and commits them; `on_done` is called with those that are checked.

    While the target runs, samples whose rows are all written are read back, checked and accepted,
    and shards that are whole are synced. An error names the sample; what was accepted by then is
    committed when the store is left. Other `detectors` are for measuring what they cost.
    """
    _Run(samples, manifest, rules, engine, store, on_done, detectors).run()


def _take_one_core() -> None:
    """Runs in a thread: torch, left alone, would take all cores for it, which the target needs."""
    torch.set_num_threads(1)


class _Run:
    def __init__(
        self,
        samples: Iterable[Sample],
        manifest: Manifest,
        rules: Rules,
        engine: Runner,
        store: StoreWriter,
        on_done: Callable[[Sequence[Sample]], None],
        detectors: Detectors,
    ) -> None:
        self._waiting = samples
        self._manifest = manifest
        self._rules = rules
        self._engine = engine
        self._store = store
        self._on_done = on_done
        self._detectors = detectors
        self._running: dict[str, Sample] = {}
        self._checks: deque[tuple[list[Sample], Future[list[Fault | None]]]] = deque()
        # The ids that each begun shard still waits for; the oldest shard is committed first.
        self._shards: deque[set[str]] = deque()
        self._commits: deque[Future[None]] = deque()
        self._done = self._unfit = 0

    def run(self) -> None:
        with (
            ThreadPoolExecutor(_CHECKING_THREADS, "check", _take_one_core) as checkers,
            ThreadPoolExecutor(1, "commit") as committer,
            closing(self._engine.run(self._prompts())) as groups,  # type: ignore[type-var]
        ):
            for group in groups:
                whole = [self._running.pop(prompt.id) for prompt in group]
                for samples in fill_groups(whole, CHECKED_BYTES, self._size):
                    self._checks.append((samples, checkers.submit(self._check, samples)))
                self._settle_checks(committer, _MOST_CHECKS)
            self._settle_checks(committer, 0)
            self._settle_commits(0)
        if self._running:
            place = self._rules.places[next(iter(self._running))]
            raise EngineError(
                f"{place}: the target gave no states ({len(self._running):,} such samples)"
            )

    def _prompts(self) -> Iterator[Prompt]:
        """The samples of a few shards by turns; shards are begun as the target comes to them."""
        shards = fill_groups(self._waiting, self._rules.shard_bytes, self._size)
        for group in batched(shards, _SHARDS_AT_ONCE, strict=False):
            turns = zip_longest(*(self._begin(samples) for samples in group))
            yield from (prompt for turn in turns for prompt in turn if prompt is not None)

    def _begin(self, samples: list[Sample]) -> list[Prompt]:
        self._settle_commits(_MOST_COMMITS)
        shard = self._store.begin(samples)
        self._shards.append({sample.id for sample in samples})
        self._running |= {sample.id: sample for sample in samples}
        return [
            Prompt(
                sample.id,
                self._rules.places[sample.id],
                sample.input_ids,
                str(shard.path),
                shard.layout.row_start(shard.offset(sample)),
            )
            for sample in samples
        ]

    def _size(self, sample: Sample) -> int:
        return self._manifest.states_bytes(len(sample.input_ids))

    def _check(self, samples: list[Sample]) -> list[Fault | None]:
        """Runs in a thread: looks at the written rows, and accepts the samples that are fit."""
        faults = self._detectors(
            [sample.input_ids for sample in samples],
            [self._store.written_states(sample) for sample in samples],
            self._manifest.capture_points,
        )
        for sample, fault in zip(samples, faults, strict=True):
            if fault is None:
                self._store.accept(sample)
        return faults

    def _settle_checks(self, committer: ThreadPoolExecutor, most: int) -> None:
        """Takes the results of checks that have ended, and waits until `most` are left."""
        while self._checks and (len(self._checks) > most or self._checks[0][1].done()):
            samples, check = self._checks.popleft()
            self._settle(samples, check.result())
            while self._shards and not self._shards[0]:
                self._shards.popleft()
                self._commits.append(committer.submit(self._store.commit))

    def _settle(self, samples: list[Sample], faults: list[Fault | None]) -> None:
        self._done += len(samples)
        for sample, fault in zip(samples, faults, strict=True):
            if fault is not None:
                self._set_aside(sample, fault)
        for waited_for in self._shards:
            waited_for.difference_update(sample.id for sample in samples)
        self._on_done(samples)

    def _set_aside(self, sample: Sample, fault: Fault) -> None:
        place = self._rules.places[sample.id]
        if self._rules.on_bad == "fail":
            raise EngineError(
                f"{place}: the target's states are {fault}, so it was not stored; check the "
                "checkpoint and its dtype, or go on without such samples with --on-bad quarantine"
            )
        self._store.quarantine(sample, fault.kind, f"{place}: {fault}")
        self._unfit += 1
        if self._unfit > max(_MOST_UNFIT_SAMPLES, _LARGEST_UNFIT_SHARE * self._done):
            raise EngineError(
                f"the target's states of {self._unfit:,} of {self._done:,} samples are unfit, the "
                f"last {fault}; check the checkpoint and its dtype"
            )

    def _settle_commits(self, most: int) -> None:
        """Waits until `most` shards are left to be synced."""
        while len(self._commits) > most:
            self._commits.popleft().result()
