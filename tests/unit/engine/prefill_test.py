"""A run of prompts without a target: what is given, and how failures are told."""

from collections.abc import Iterator
from typing import Any

import pytest

from eagle3.engine.prefill import Prefill, Prompt
from eagle3.engine.rows import Report, Rows
from eagle3.errors import EngineError, StoreError

ROW_BYTES = 10


class Scheduler:
    """Runs one prompt a step, in steps of three tokens."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[int]] = {}
        self.can_run = True

    @property
    def wants_more(self) -> bool:
        return not self.waiting

    @property
    def requests(self) -> tuple[str, ...]:
        return tuple(self.waiting)

    def add(self, request: str, token_ids: Any) -> None:
        self.waiting[request] = [0, len(token_ids)]

    def next_step(self) -> Any:
        if not self.waiting or not self.can_run:
            return None
        request, (first, end) = next(iter(self.waiting.items()))
        following = min(first + 3, end)
        self.waiting[request][0] = following
        if following == end:
            del self.waiting[request]
        return Step({request: range(first, following)})

    def clear(self) -> None:
        self.waiting.clear()


class Step:
    def __init__(self, ranges: dict[str, range]) -> None:
        self.output, self.ranges = None, ranges


class Workers:
    """Two ranks, of which each writes every other row, and reports one row a call."""

    count = 2
    dead = None

    def __init__(self) -> None:
        self.late: list[list[Rows]] = [[], []]
        self.seen: list[Rows] = []
        self.fail: BaseException | None = None
        self.failure: str | None = None
        self.of_target = False
        self.forget = self.repeat = 0

    def call(self, method: str, *arguments: Any, timeout_s: float) -> list[Report]:
        if self.fail is not None:
            raise self.fail
        reports = [
            Report(tuple(rows[:1]), len(rows) > 1, self.failure, self.of_target)
            for rows in self.late
        ]
        self.late = [rows[1:] for rows in self.late]
        if method == "run_captured_step":
            for rows in arguments[1]:
                self.seen.append(rows)
                for row in range(self.forget, rows.count):
                    self.late[row % 2].append(rows.cut(row, row + 1, ROW_BYTES))
                for row in range(self.repeat):
                    self.late[0].append(rows.cut(row, row + 1, ROW_BYTES))
        return reports


def prompts(*lengths: int) -> Iterator[tuple[str, Prompt]]:
    for number, length in enumerate(lengths):
        yield f"r{number}", Prompt(str(number), f"data:{number}", [7] * length, "x", 1000 * number)


@pytest.fixture
def workers() -> Workers:
    return Workers()


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


@pytest.fixture
def prefill(workers: Any, scheduler: Any) -> Prefill:
    return Prefill(workers, scheduler, ROW_BYTES, 5.0)


def test_every_prompt_is_given_once_and_in_its_place(prefill: Prefill, workers: Workers) -> None:
    groups = list(prefill.run(prompts(1, 7, 3)))
    assert sorted(prompt.id for group in groups for prompt in group) == ["0", "1", "2"]
    assert [(rows.request, rows.first, rows.count, rows.position) for rows in workers.seen] == [
        ("r0", 0, 1, 0),
        ("r1", 0, 3, 1000),
        ("r1", 3, 3, 1030),
        ("r1", 6, 1, 1060),
        ("r2", 0, 3, 2000),
    ]
    assert prefill.end()


def test_prompts_are_taken_when_they_are_needed(prefill: Prefill) -> None:
    source = prompts(1, 1, 1)
    run = prefill.run(source)
    assert [prompt.id for prompt in next(run)] == ["0"]
    assert next(source)[0] == "r2"


def test_rows_that_were_not_written_are_told(prefill: Prefill, workers: Workers) -> None:
    workers.forget = 1
    with pytest.raises(EngineError, match=r"not every row of data:0 and 1 more was written"):
        list(prefill.run(prompts(2, 2)))


def test_rows_that_were_written_twice_are_told(prefill: Prefill, workers: Workers) -> None:
    workers.repeat = 1
    with pytest.raises(EngineError, match="rows 0 to 1 of request r0 were written twice"):
        list(prefill.run(prompts(2)))


def test_prompts_that_cannot_be_scheduled_are_told(prefill: Prefill, scheduler: Scheduler) -> None:
    scheduler.can_run = False
    with pytest.raises(EngineError, match=r"1 prompts could not be scheduled, .* data:0: the KV"):
        list(prefill.run(prompts(2)))


def test_a_disk_that_takes_no_more_is_told(prefill: Prefill, workers: Workers) -> None:
    workers.failure = "cannot write to x: No space left on device"
    with pytest.raises(StoreError, match="No space left on device; what was committed is safe"):
        list(prefill.run(prompts(2)))
    assert prefill.end()


def test_a_gpu_that_fails_is_not_the_folders_fault(prefill: Prefill, workers: Workers) -> None:
    workers.failure, workers.of_target = "cannot copy captured rows: CUDA error", True
    with pytest.raises(EngineError, match="step of data:0 or before: cannot copy captured rows"):
        list(prefill.run(prompts(2)))


def test_a_failure_names_the_prompts_of_its_step(prefill: Prefill, workers: Workers) -> None:
    workers.fail = TimeoutError("RPC call timed out.")
    with pytest.raises(EngineError, match="a step of data:0: TimeoutError: RPC call timed out"):
        list(prefill.run(prompts(2)))
    # A late reply would be taken for the answer to the next call.
    assert not prefill.end()


@pytest.mark.parametrize(
    ("count", "dead", "goes_on"), [(1, None, True), (2, None, False), (1, "it died", False)]
)
def test_only_one_living_rank_can_go_on_after_an_error(
    prefill: Prefill, workers: Any, count: int, dead: str | None, goes_on: bool
) -> None:
    workers.fail, workers.count, workers.dead = RuntimeError("boom"), count, dead
    with pytest.raises(EngineError, match=dead or "boom"):
        list(prefill.run(prompts(2)))
    workers.fail = None
    assert prefill.end() == goes_on
