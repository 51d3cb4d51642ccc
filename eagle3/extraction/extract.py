"""The whole of an extraction, from what the user asks to the report."""

import time
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from eagle3.checks.checkpoint_files import read_checkpoint_files
from eagle3.checks.run import check_before_the_load
from eagle3.engine.capture_points import after_layer_ids, vllm_ids
from eagle3.engine.engine import Engine
from eagle3.errors import Eagle3Error
from eagle3.extraction.disk import DiskPlan
from eagle3.extraction.plan import ExtractionPlan, plan_extraction
from eagle3.extraction.prefetch import Prefetch
from eagle3.extraction.request import ExtractionRequest
from eagle3.extraction.rounds import Rounds, check_budget
from eagle3.extraction.run import Rules, run_extraction
from eagle3.extraction.sanity import check_choices
from eagle3.extraction.size import readable_size
from eagle3.progress import Progress, as_clock
from eagle3.store.manifest import MANIFEST
from eagle3.store.reader import StoreReader
from eagle3.store.writer import StoreWriter


@dataclass(frozen=True)
class ExtractionReport:
    """What lies in `out` now, the parts of other runs included.

    `layers` are in the convention that was asked for, `shape` is [tokens, L, H] of all samples
    together, `dtype` what they are stored as, `size` the bytes of their shards. `tokens_per_s` is
    the rate of this run without the start of the target, None where everything was there already.
    `quarantined` counts the samples that were set aside.
    """

    samples: int
    tokens: int
    tokens_per_s: float | None
    layers: tuple[int, ...]
    shape: tuple[int, int, int]
    dtype: str
    size: int
    quarantined: int
    out: Path


def extract(request: ExtractionRequest, progress: Progress) -> ExtractionReport:
    """Plans, starts the target where anything is missing, runs it and commits its states.

    Raises InputError, EngineError or StoreError; nothing is written before the target runs.
    """
    check_budget(request)
    with progress.waiting("checking the target and the data"):
        plan = plan_extraction(request)
    _announce(plan, request, progress)
    if plan.missing and request.preflight:
        check_before_the_load(request, plan, progress)
    try:
        tokens_per_s = _run(plan, request, progress) if plan.missing else _finish(plan)
    except (Eagle3Error, KeyboardInterrupt):
        _tell_what_is_safe(plan, request, progress)
        raise
    store = StoreReader(request.out)
    tokens = store.tokens
    if store.quarantined:
        progress.say(
            f"out: samples set aside as unfit: {len(store.quarantined):,}, see quarantine.jsonl"
        )
    if store.used:
        progress.say(f"out: samples used by training and removed: {len(store.used):,}")
    return ExtractionReport(
        samples=len(store.ids),
        tokens=tokens,
        tokens_per_s=tokens_per_s,
        layers=_layers(plan, request),
        shape=(tokens, len(plan.capture_points), plan.architecture.hidden_size),
        dtype=plan.manifest.dtype,
        size=store.size,
        quarantined=len(store.quarantined),
        out=request.out,
    )


def _finish(plan: ExtractionPlan) -> None:
    """Commits what a killed run left whole, where that was all that was missing."""
    with StoreWriter(plan.store, plan.manifest, plan.held_out):
        pass


def _tell_what_is_safe(
    plan: ExtractionPlan, request: ExtractionRequest, progress: Progress
) -> None:
    # Whatever is wrong with the folder now, the first error is the one to tell.
    with suppress(Eagle3Error):
        if not (plan.store / MANIFEST).exists():
            return
        store = StoreReader(request.out)
        committed = len(store.ids) + len(store.used)
        progress.say(
            f"out: {committed:,} of {plan.manifest.dataset.samples:,} samples are committed; "
            "the same command goes on from there"
        )


def _run(plan: ExtractionPlan, request: ExtractionRequest, progress: Progress) -> float:
    options = request.engine_options(plan.capture_points, plan.max_model_len)
    rules = Rules(plan.planned.places, request.shard_bytes, request.on_bad)
    tokens = sum(len(sample.input_ids) for sample in plan.missing)
    with _prefetch(request, progress), progress.waiting("starting the target"):
        engine = Engine(options)
    with engine:
        if request.preflight:
            check_choices(engine, request.model, plan.missing, _last_point(plan), progress)
        with (
            StoreWriter(plan.store, plan.manifest, plan.held_out) as store,
            # Once more: the target must be gone before the store commits what is left of a shard.
            engine,
            progress.bar("extracting", samples=len(plan.missing), tokens=tokens) as bar,
        ):
            began = time.monotonic()
            rounds = Rounds(plan, request, progress)
            for samples in rounds:
                run_extraction(
                    samples,
                    plan.manifest,
                    rules,
                    engine,
                    store,
                    on_done=lambda done: bar.advance(
                        samples=len(done), tokens=sum(len(sample.input_ids) for sample in done)
                    ),
                )
            return tokens / (time.monotonic() - began - rounds.waited)


def _prefetch(request: ExtractionRequest, progress: Progress) -> AbstractContextManager[object]:
    if not request.prefetch:
        return nullcontext()
    return Prefetch(read_checkpoint_files(request.model).files, progress)


def _last_point(plan: ExtractionPlan) -> int | None:
    """Where the point after all layers stands among those that are captured."""
    points, last = plan.capture_points, plan.architecture.num_layers
    return points.index(last) if last in points else None


def _announce(plan: ExtractionPlan, request: ExtractionRequest, progress: Progress) -> None:
    architecture, dataset, planned = plan.architecture, plan.manifest.dataset, plan.planned
    supervised = sum(sum(sample.loss_mask) for sample in planned.samples)
    lengths = sorted(len(sample.input_ids) for sample in planned.samples)
    progress.say(
        f"target: {request.model.name} ({architecture.model_type}, {architecture.num_layers} "
        f"layers, hidden {architecture.hidden_size})"
    )
    progress.say(
        f"data: {request.data.name}: {dataset.samples:,} samples, {dataset.tokens:,} tokens "
        f"({supervised / dataset.tokens:.0%} supervised), {lengths[0]:,} to {lengths[-1]:,} each"
    )
    if planned.held_out:
        progress.say(_describe_held_out(plan, request))
    if planned.truncated:
        progress.say(f"data: samples cut to {plan.max_model_len:,} tokens: {planned.truncated:,}")
    if planned.duplicates:
        progress.say(f"data: repeated samples, stored once: {planned.duplicates:,}")
    progress.say(
        f"layers: {_join(_layers(plan, request))} ({request.layer_convention}), "
        f"capture points {_join(plan.capture_points)}"
    )
    if request.part.count > 1:
        progress.say(f"part: {request.part} of the work, into {plan.store.name}")
    present = sum(sample.id in plan.done for sample in planned.samples)
    if present:
        progress.say(f"out: {present:,} of {dataset.samples:,} samples are already there")
    if plan.missing:
        progress.say(f"out: {_describe_disk(plan.disk)}")


def _describe_held_out(plan: ExtractionPlan, request: ExtractionRequest) -> str:
    held_out = plan.manifest.dataset.held_out
    if held_out is None:
        return (
            f"data: {len(plan.planned.held_out):,} samples are held out by prepare, which "
            f"{request.out.name} cannot note, since parts of it were begun without: train may "
            "learn from them; when all parts are there, join them with inspect --merge, and run "
            "this again without --shard"
        )
    return (
        f"data: {held_out.samples:,} of them, {held_out.tokens:,} tokens, are held out by "
        "prepare: train does not learn from them"
    )


def _describe_disk(disk: DiskPlan) -> str:
    line = f"{readable_size(disk.needed)} needed, {readable_size(disk.free)} free"
    if disk.seconds is None or disk.bytes_per_s is None:
        return line
    return (
        f"{line}; {as_clock(disk.seconds)} at the {readable_size(disk.bytes_per_s)}/s of the "
        "shards before"
    )


def _layers(plan: ExtractionPlan, request: ExtractionRequest) -> tuple[int, ...]:
    convert = vllm_ids if request.layer_convention == "vllm" else after_layer_ids
    return tuple(convert(plan.capture_points))


def _join(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))
