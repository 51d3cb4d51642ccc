"""Metrics on the console and in metrics.jsonl, one line for every few steps."""

import json
import os
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from eagle3.errors import StoreError
from eagle3.progress import Progress, as_clock
from eagle3.store.durable import write_file
from eagle3.training.metrics import StepMetrics
from eagle3.training.trackers import Tracker

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Record:
    """What is known after `step` steps; the training's means are over the steps since the last.

    `tokens` were seen by then, without padding, by all processes, in each epoch anew.
    `mfu` and `waited` are shares: of the hardware's arithmetic, and of the time in which no data
    was there. What a validation does not measure is None.
    """

    kind: Literal["train", "validation"]
    step: int
    tokens: int
    loss: float
    metrics: StepMetrics
    learning_rate: float | None = None
    gradient_norm: float | None = None
    tokens_per_s: float | None = None
    mfu: float | None = None
    waited: float | None = None

    def fields(self) -> dict[str, Any]:
        """The record as a JSON object: no field that is None, lists for unrolled steps."""
        flat = asdict(self)
        metrics = flat.pop("metrics")
        flat["acceptance_length"] = self.metrics.acceptance_length
        flat |= {f"{name}_per_step": list(values) for name, values in metrics.items()}
        return {name: value for name, value in flat.items() if value is not None}


class Log:
    """Says records on stderr and appends them to the file in `out`."""

    def __init__(self, out: Path, progress: Progress, steps: int, tracker: Tracker) -> None:
        self._path = out / METRICS
        self._progress = progress
        self._steps = steps
        self._tracker = tracker

    def begin(self, step: int | None) -> None:
        """Keeps the records up to `step`, None if the run begins: a killed one may have more."""
        records = read_records(self._path) if step is not None else []
        kept = [record for record in records if record["step"] <= step]
        lines = "".join(json.dumps(record) + "\n" for record in kept)
        with self._explained():
            write_file(self._path, lines.encode())

    def waiting(self, what: str) -> AbstractContextManager[None]:
        """Says that `what` goes on, and for how long."""
        return self._progress.waiting(what)

    def reminding(self, what: str) -> AbstractContextManager[None]:
        """Says that `what` goes on, where it takes long."""
        return self._progress.reminding(what)

    def write(self, record: Record, seconds_left: float | None = None) -> None:
        self._progress.say(describe(record, self._steps, seconds_left))
        with self._explained(), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record.fields()) + "\n")
            file.flush()
            # A checkpoint that outlives a power cut must find its records.
            os.fsync(file.fileno())
        self._tracker.log(record.fields())

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"cannot write {self._path}: {error.strerror}; the same command goes on from the "
                "last checkpoint"
            ) from error


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a run, none where there is no file; a line that was cut short is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{path} is damaged: {error}; remove it: the run goes on without its records"
        ) from error


def describe(record: Record, steps: int, seconds_left: float | None) -> str:
    """The line for the console."""
    metrics = record.metrics
    parts = [
        f"step {record.step:,}/{steps:,}" if record.kind == "train" else "  validation",
        f"loss {record.loss:.3f} ({_join(metrics.loss, '.2f')})",
        f"acceptance {metrics.acceptance_length:.3f}",
        f"joint {_join(metrics.joint, '.0%')}",
        f"conditional {_join(metrics.conditional, '.0%')}",
    ]
    if record.tokens_per_s is not None:
        parts.append(f"{record.tokens_per_s:,.0f} tokens/s")
    if record.mfu is not None:
        parts.append(f"MFU {record.mfu:.0%}")
    if record.waited is not None:
        parts.append(f"waiting {record.waited:.1%}")
    if seconds_left is not None:
        parts.append(f"{as_clock(seconds_left)} left")
    return ", ".join(parts)


def _join(values: tuple[float, ...], form: str) -> str:
    return " ".join(format(value, form) for value in values)
