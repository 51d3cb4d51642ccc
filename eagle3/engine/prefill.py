"""One run of prompts through the target, step by step, with every row accounted for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eagle3.engine.ledger import Ledger
from eagle3.engine.rows import Report, Rows
from eagle3.engine.worker_log import one_line_cause
from eagle3.errors import EngineError, StoreError

if TYPE_CHECKING:
    from eagle3.engine.scheduling import StepScheduler
    from eagle3.engine.workers import Workers


@dataclass(frozen=True)
class Prompt:
    """A token sequence whose rows, bf16 [T, L, H], go to the file `path` from byte `position` on.

    `name` is for error messages, such as the line of the data; `id` is the caller's.
    """

    id: str
    name: str
    token_ids: Sequence[int]
    path: str
    position: int


class Prefill:
    """Runs prompts once; `end` must follow, however the run ended."""

    def __init__(
        self, workers: "Workers", scheduler: "StepScheduler", row_bytes: int, timeout_s: float
    ) -> None:
        self._workers = workers
        self._scheduler = scheduler
        self._row_bytes = row_bytes
        self._timeout_s = timeout_s
        self._ledger = Ledger()
        self._prompts: dict[str, Prompt] = {}
        self._in_step = False

    def run(self, prompts: Iterator[tuple[str, Prompt]]) -> Iterator[list[Prompt]]:
        """Runs prompts under the names of their requests, and gives those that are whole."""
        while (step := self._next_step(prompts)) is not None:
            output, rows = step
            yield from self._settle(self._call("run_captured_step", output, rows, rows=rows))
        more = True
        while more:
            reports = self._call("finish_capture")
            yield from self._settle(reports)
            more = any(report.more for report in reports)
        if self._ledger.open:
            raise EngineError(
                f"not every row of {self._names(self._ledger.open)} was written; run the same "
                "command again"
            )

    def end(self) -> bool:
        """Makes sure that nothing more is written; False where only stopping the workers does."""
        self._scheduler.clear()
        if self._in_step:
            # A late reply would be taken for the answer to the next call.
            return False
        try:
            while any(
                report.more
                for report in self._workers.call("finish_capture", timeout_s=self._timeout_s)
            ):
                pass
        except Exception:
            return False
        return True

    def _next_step(
        self, prompts: Iterator[tuple[str, Prompt]]
    ) -> "tuple[object, tuple[Rows, ...]] | None":
        while self._scheduler.wants_more and (following := next(prompts, None)) is not None:
            request, prompt = following
            self._prompts[request] = prompt
            self._ledger.expect(request, len(prompt.token_ids))
            self._scheduler.add(request, prompt.token_ids)
        step = self._scheduler.next_step()
        if step is not None:
            return step.output, tuple(self._place(*item) for item in step.ranges.items())
        if waiting := self._scheduler.requests:
            raise EngineError(
                f"{len(waiting)} prompts could not be scheduled, the first being "
                f"{self._names(waiting[:1])}: the KV cache holds too few tokens"
            )
        return None

    def _place(self, request: str, rows: range) -> Rows:
        prompt = self._prompts[request]
        position = prompt.position + rows.start * self._row_bytes
        return Rows(request, rows.start, len(rows), prompt.path, position)

    def _call(self, method: str, *arguments: object, rows: Sequence[Rows] = ()) -> list[Report]:
        self._in_step = True
        try:
            reports = self._workers.call(method, *arguments, timeout_s=self._timeout_s)
        except Exception as error:
            died = self._workers.dead
            # One rank that is alive has answered; of several, others may still do.
            answered = isinstance(error, RuntimeError) and self._workers.count == 1
            self._in_step = died is not None or not answered
            cause = died or one_line_cause(error)
            requests = [part.request for part in rows] or self._ledger.open
            raise EngineError(
                f"the target failed in a step of {self._names(requests)}: {cause}"
            ) from error
        self._in_step = False
        return reports

    def _settle(self, reports: Sequence[Report]) -> Iterator[list[Prompt]]:
        whole = []
        for report in reports:
            if report.failure is not None and report.of_target:
                raise EngineError(
                    f"the target failed in a step of {self._names(self._ledger.open)} or before: "
                    f"{report.failure}"
                )
            if report.failure is not None:
                raise StoreError(f"{report.failure}; what was committed is safe")
            try:
                whole += self._ledger.enter(report.written)
            except RuntimeError as error:
                raise EngineError(str(error)) from error
        if whole:
            yield [self._prompts.pop(request) for request in whole]

    def _names(self, requests: Sequence[str]) -> str:
        first = self._prompts[requests[0]].name if requests else "no prompts"
        return first if len(requests) < 2 else f"{first} and {len(requests) - 1:,} more"
