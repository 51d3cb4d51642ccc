"""Extraction in rounds, where the disk shall hold only so much at a time."""

import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from eagle3.errors import InputError
from eagle3.extraction.disk import bytes_needed
from eagle3.extraction.groups import fill_groups
from eagle3.extraction.plan import ExtractionPlan
from eagle3.extraction.request import ExtractionRequest
from eagle3.extraction.size import readable_size
from eagle3.progress import Progress
from eagle3.store.room import bytes_of_shards, remove_sign, sign_of_waiting
from eagle3.store.sample import Sample

_SECONDS_BETWEEN_LOOKS = 0.5


class Rounds:
    """The samples of `plan`, in as many rounds as `--disk-budget` makes of them.

    A round takes all the shards for which there is room now. Before the next one, the target has
    come to rest and everything is committed, so that training can use it and make room.
    """

    def __init__(
        self, plan: ExtractionPlan, request: ExtractionRequest, progress: Progress
    ) -> None:
        self._plan = plan
        self._request = request
        self._progress = progress
        self.waited = 0.0  # seconds, for room

    def __iter__(self) -> Iterator[list[Sample]]:
        """Call it when the folder is made. Waits for room as long as it takes."""
        budget, missing, folder = self._request.disk_budget, self._plan.missing, self._plan.store
        # A killed run's.
        remove_sign(folder)
        if budget is None:
            yield list(missing)
            return
        shards = deque(fill_groups(missing, self._request.shard_bytes, self._size))
        while shards:
            room = self._wait_for_room(folder, self._needed(shards[0]), budget)
            samples = shards.popleft()
            room -= self._needed(samples)
            while shards and (needed := self._needed(shards[0])) <= room:
                room -= needed
                samples += shards.popleft()
            yield samples

    def _wait_for_room(self, folder: Path, needed: int, budget: int) -> int:
        """Bytes that `folder` may still take: at least `needed`, unless it is empty."""
        there = bytes_of_shards(folder)
        if there and there + needed > budget:
            began = time.monotonic()
            what = (
                f"{readable_size(there)} of --disk-budget {readable_size(budget)} are full: "
                "waiting for training to use shards and remove them"
            )
            with sign_of_waiting(folder), self._progress.waiting(what):
                while there and there + needed > budget:
                    time.sleep(_SECONDS_BETWEEN_LOOKS)
                    there = bytes_of_shards(folder)
            self.waited += time.monotonic() - began
        return budget - there

    def _needed(self, samples: list[Sample]) -> int:
        return bytes_needed(samples, self._plan.manifest, self._request.shard_bytes)

    def _size(self, sample: Sample) -> int:
        return self._plan.manifest.states_bytes(len(sample.input_ids))


def check_budget(request: ExtractionRequest) -> None:
    """Raises InputError where the disk budget is too small to write one shard and read another."""
    budget, shard = request.disk_budget, request.shard_bytes
    if budget is not None and budget < 2 * shard:
        raise InputError(
            f"--disk-budget {readable_size(budget)} is less than two shards of "
            f"{readable_size(shard)}; raise it, or lower --shard-size"
        )
