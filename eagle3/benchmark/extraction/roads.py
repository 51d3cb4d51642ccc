"""The roads that are compared; each runs in a process of its own, which ends with it."""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from eagle3.benchmark.extraction.detectors import TimedDetectors, no_detectors
from eagle3.benchmark.extraction.process import cpu_seconds
from eagle3.benchmark.extraction.workload import Workload
from eagle3.engine.baselines import patched_generator, plain_prefill
from eagle3.engine.engine import Engine
from eagle3.extraction.run import Detectors, Rules, run_extraction
from eagle3.extraction.states import find_faults
from eagle3.store.manifest import DatasetIdentity, Manifest, StackIdentity, TargetIdentity
from eagle3.store.sample import Sample, dataset_digest
from eagle3.store.writer import StoreWriter

_SHARD_BYTES = 1024**3

# Runs prompts once, puts what comes out into a folder, and tells the CPU seconds of detectors.
Pass = Callable[[Sequence[Sequence[int]], Path], float]


@dataclass(frozen=True)
class PassTimes:
    """Seconds of a pass; `cpu_s` is the CPU time of all processes, `detectors_s` a part of it."""

    seconds: float
    cpu_s: float
    detectors_s: float


def device_name() -> str:
    """What the target runs on, once it has run."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = {line.partition(": ")[2] for line in lines if line.startswith("model name")}
    return f"{', '.join(sorted(names))} ({len(_cores(lines))} cores)"


def time_road(road: str, workload: Workload) -> list[PassTimes]:
    """Times of each pass of the road, after one that warms it up; of the old road, which is slow,
    of one pass."""
    passes = 1 if road == "old" else workload.passes
    with _ROADS[road](workload) as run:
        _one_pass(run, workload.warm_up(), workload.scratch)
        return [_one_pass(run, workload.token_ids(), workload.scratch) for _ in range(passes)]


def _one_pass(run: Pass, prompts: Sequence[Sequence[int]], scratch: Path) -> PassTimes:
    folder = scratch / "pass"
    folder.mkdir()
    try:
        cpu_began, began = cpu_seconds(), time.monotonic()
        detectors_s = run(prompts, folder)
        return PassTimes(time.monotonic() - began, cpu_seconds() - cpu_began, detectors_s)
    finally:
        shutil.rmtree(folder)


@contextmanager
def _plain(workload: Workload) -> Iterator[Pass]:
    with plain_prefill(workload.options) as prefill:

        def run(prompts: Sequence[Sequence[int]], folder: Path) -> float:
            prefill(prompts)
            return 0.0

        yield run


@contextmanager
def _old(workload: Workload) -> Iterator[Pass]:
    with patched_generator(workload.options) as generate:

        def run(prompts: Sequence[Sequence[int]], folder: Path) -> float:
            generate(prompts, folder)
            return 0.0

        yield run


@contextmanager
def _extraction(workload: Workload, detectors: Detectors) -> Iterator[Pass]:
    with Engine(workload.options) as engine:

        def run(prompts: Sequence[Sequence[int]], folder: Path) -> float:
            timed = TimedDetectors(detectors)
            _extract(engine, prompts, folder, timed)
            return timed.seconds

        yield run


def _extract(
    engine: Engine, prompts: Sequence[Sequence[int]], folder: Path, detectors: Detectors
) -> None:
    samples = [Sample(tuple(prompt_T), (1,) * len(prompt_T)) for prompt_T in prompts]
    places = {sample.id: f"prompt {place}" for place, sample in enumerate(samples)}
    manifest = _manifest(samples, engine)
    with StoreWriter(folder / "states", manifest) as store:
        run_extraction(
            samples,
            manifest,
            Rules(places, _SHARD_BYTES, "fail"),
            engine,
            store,
            on_done=lambda _: None,
            detectors=detectors,
        )


_ROADS = {
    "plain": _plain,
    "old": _old,
    "ours": partial(_extraction, detectors=find_faults),
    "unchecked": partial(_extraction, detectors=no_detectors),
}
ROADS = tuple(_ROADS)


def _manifest(samples: Sequence[Sample], engine: Engine) -> Manifest:
    tokens = sum(len(sample.input_ids) for sample in samples)
    return Manifest(
        target=TargetIdentity(str(engine.options.model), "", ""),
        tokenizer_sha256="",
        dataset=DatasetIdentity(len(samples), tokens, dataset_digest(list(samples))),
        stack=StackIdentity("", "", {}, {}),
        capture_points=engine.options.capture_points,
        hidden_size=engine.architecture.hidden_size,
    )


def _cores(lines: Sequence[str]) -> set[str]:
    return {line for line in lines if line.startswith("processor")}
