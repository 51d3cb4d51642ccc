"""Engines for tests."""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from eagle3.engine.architecture import read_architecture
from eagle3.engine.engine import Engine
from eagle3.engine.options import EngineOptions

if TYPE_CHECKING:
    from eagle3.engine.scheduling import Step


def all_capture_points(model: Path) -> tuple[int, ...]:
    """Every capture point of a target, from the embedding's output to the last layer's."""
    return tuple(range(read_architecture(model).num_layers + 1))


@contextmanager
def running_engine(
    model: Path, capture_points: tuple[int, ...] | None = None, **options: Any
) -> Iterator[Engine]:
    """An engine that captures every point by default, and whose processes are gone afterwards."""
    points = all_capture_points(model) if capture_points is None else capture_points
    with Engine(EngineOptions(model, points, **options)) as engine:
        yield engine
    assert worker_processes() == []


def executor_of(engine: Engine) -> Any:
    """vLLM's executor inside a running engine."""
    assert engine._workers is not None
    return engine._workers.executor


def scheduled_prompts(engine: Engine) -> tuple[str, ...]:
    """What is left in the scheduler of a running engine."""
    assert engine._scheduler is not None
    return engine._scheduler.requests


def record_steps(engine: Engine) -> list[int]:
    """A list that grows with the tokens of each step that a running engine plans from now on."""
    scheduler = engine._scheduler
    assert scheduler is not None
    plan, sizes = scheduler.next_step, []

    def record() -> "Step | None":
        step = plan()
        if step is not None:
            sizes.append(sum(map(len, step.ranges.values())))
        return step

    scheduler.next_step = record  # type: ignore[method-assign]
    return sizes


def worker_processes() -> list[str]:
    """Children of this process, zombies too, but for the one that tracks shared memory."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            status = child.status()
            # A zombie has no command line to tell.
            line = [] if status == psutil.STATUS_ZOMBIE else child.cmdline()
            if "resource_tracker" not in " ".join(line):
                found.append(f"{child.pid} {status}")
    return found
