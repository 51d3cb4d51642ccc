"""The reference run: Kimi-K2.5's language model, INT4, on 8 GPUs, with random weights.

    python3 -m tests.gpu.reference_run --json                     61 layers on 8 GPUs
    python3 -m tests.gpu.reference_run --gpus 2 --layers 12       what two H200 hold with ease
    python3 -m tests.gpu.reference_run --cpu --gpus 2             a tiny target on 2 CPU ranks

Plain prefill, extraction of the same prompts and of some of them alone, then a run in which a rank
is killed and which goes on: all in one process group, each phase with its own start of the target.
Exit codes as extract's.
"""

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import click
import psutil

from eagle3.benchmark.extraction.process import run_apart
from eagle3.benchmark.extraction.workload import Workload
from eagle3.command import Command, run, stdout_for_result_only, user_path
from eagle3.engine.architecture import read_architecture
from eagle3.engine.capture_points import capture_points_from_layers
from eagle3.engine.engine import Engine
from eagle3.engine.options import EngineOptions
from eagle3.errors import EngineError, InputError
from eagle3.extraction.run import Rules, run_extraction
from eagle3.progress import Progress
from eagle3.store.manifest import Manifest
from eagle3.store.plan import plan_store
from eagle3.store.sample import Sample
from eagle3.store.writer import StoreWriter
from tests.gpu.reference_checks import (
    Nearness,
    check_store,
    counted_shares,
    nearness_alone,
    nearness_of_stores,
    worker_pids,
)
from tests.gpu.reference_plan import SHARD_BYTES, Run, plan
from tests.gpu.reference_target import FULL_DEPTH, captured_layers, write_reference_target
from tests.gpu.worker_probe import (
    Profile,
    enliven,
    peak_bytes,
    restore,
    start_profile,
    stop_profile,
)
from tests.integration.engines import executor_of

# On 8 RTX PRO 6000, before this project.
REFERENCE_TOKENS_PER_S = 2280
_PROFILED_STEPS = 4
_PROBE_TIMEOUT_S = 300.0
_PROMPTS_ALONE = 4


def time_plain(workloads: Sequence[Workload]) -> tuple[float, list[float]]:
    """Seconds of the target's start, and of a plain prefill of each workload: its median pass."""
    from eagle3.engine.baselines import plain_prefill

    began = time.monotonic()
    with plain_prefill(workloads[0].options) as prefill:
        start_s = time.monotonic() - began
        seconds = []
        for workload in workloads:
            prefill(workload.warm_up())
            passes = []
            for _ in range(workload.passes):
                began = time.monotonic()
                prefill(workload.token_ids())
                passes.append(time.monotonic() - began)
            seconds.append(median(passes))
    return start_s, seconds


def extract(
    run: Run,
    engine: Engine,
    samples: Sequence[Sample],
    manifest: Manifest,
    folder: Path,
    on_done: Callable[[int], None] = lambda _: None,
) -> float:
    """Extracts `samples` into the store `folder`; seconds until all of it was committed.

    `on_done` is told the number of samples done so far.
    """
    places = {sample.id: f"sample {number}" for number, sample in enumerate(samples)}
    done = 0
    tokens = sum(len(sample.input_ids) for sample in samples)

    def count(group: Sequence[Sample]) -> None:
        nonlocal done
        done += len(group)
        bar.advance(samples=len(group), tokens=sum(len(sample.input_ids) for sample in group))
        on_done(done)

    began = time.monotonic()
    with (
        StoreWriter(folder, manifest) as store,
        run.progress.bar("extracting", samples=len(samples), tokens=tokens) as bar,
    ):
        run_extraction(samples, manifest, Rules(places, SHARD_BYTES, "fail"), engine, store, count)
    return time.monotonic() - began


def profiled(run: Run, engine: Engine) -> Profile:
    """Where the time of a few full steps goes, on the first rank."""
    length = run.lengths[-1]
    count = max(1, _PROFILED_STEPS * run.options.max_tokens_per_step // length)
    samples = run.samples(length)[:count]
    folder = run.scratch / "profiled"
    executor = executor_of(engine)
    executor.collective_rpc(start_profile, timeout=_PROBE_TIMEOUT_S)
    extract(run, engine, samples, run.manifest(samples), folder)
    profiles = executor.collective_rpc(stop_profile, timeout=_PROBE_TIMEOUT_S)
    shutil.rmtree(folder)
    return profiles[0]


def alone_and_together(run: Run, engine: Engine) -> Nearness:
    """How near prompts that run by themselves come to the same in a full step."""
    length = run.lengths[0]
    count = max(2, run.options.max_tokens_per_step // length)
    prompts = run.workload(length).token_ids()[:count]
    with livelier_weights(engine):
        return nearness_alone(engine, prompts, _PROMPTS_ALONE)


@contextmanager
def livelier_weights(engine: Engine) -> Iterator[None]:
    """Random weights with which each layer counts, inside."""
    executor = executor_of(engine)
    executor.collective_rpc(enliven, timeout=_PROBE_TIMEOUT_S)
    yield
    executor.collective_rpc(restore, timeout=_PROBE_TIMEOUT_S)


def kill_and_resume(run: Run, engine: Engine) -> tuple[dict[str, Any], list[str]]:
    """Kills a rank in the middle of a run, starts the target again, and lets the run go on.

    The figures, and what was checked, in lines.
    """
    samples = run.samples(run.lengths[0])
    manifest = run.manifest(samples)
    folder = run.scratch / "killed"
    pids = worker_pids(engine)
    family = psutil.Process().children(recursive=True)
    victim = len(pids) - 1
    killed: list[float] = []

    def kill(done: int) -> None:
        if done >= len(samples) // 3 and not killed:
            os.kill(pids[victim], signal.SIGKILL)
            killed.append(time.monotonic())

    try:
        with engine:
            extract(run, engine, samples, manifest, folder, kill)
    except EngineError as error:
        lines = [f"killed: rank {victim}: {error}"]
        if not killed:
            raise
    else:
        raise EngineError("the run ended though one of its ranks was killed")
    figures: dict[str, Any] = {"kill_to_error_s": round(time.monotonic() - killed[0], 1)}
    alive = [process.pid for process in family if _holds_on(process)]
    if alive:
        raise EngineError(f"processes {alive} are still there after rank {victim} was killed")
    holdings = plan_store(folder, manifest)
    missing = [sample for sample in samples if sample.id not in holdings]
    kept = len(samples) - len(missing)
    if not missing or not kept:
        raise EngineError(f"{kept} of {len(samples)} samples were kept after the kill")
    began = time.monotonic()
    with run.progress.waiting("starting the target again"):
        engine = Engine(run.options)
    figures["restart_s"] = round(time.monotonic() - began, 1)
    with engine:
        extract(run, engine, missing, manifest, folder)
    check_store(folder, samples, manifest)
    lines.append(f"resumed: {kept:,} samples kept, {len(missing):,} done anew, store whole")
    near = nearness_of_stores(folder, run.scratch / str(run.lengths[0]))
    lines.append(f"against the run before: {near}")
    return figures | {"resumed": asdict(near)}, lines


def _holds_on(process: psutil.Process) -> bool:
    """Whether a process outlives the target; the tracker of shared memory is Python's own."""
    try:
        if "resource_tracker" in " ".join(process.cmdline()):
            return False
        process.wait(timeout=60)
    except psutil.NoSuchProcess:
        return False
    except psutil.TimeoutExpired:
        return True
    return False


def reference_run(run: Run, *, plain: bool, kill: bool) -> dict[str, Any]:
    """All phases; the figures, and what was checked, in lines."""
    say = run.progress.say
    checked = plan(run)
    for line in checked:
        say(line)
    figures: dict[str, Any] = {}
    plain_seconds: list[float | None] = [None] * len(run.lengths)
    if plain:
        with run.progress.waiting("plain prefill"):
            workloads = [run.workload(length) for length in run.lengths]
            (start_s, seconds), _ = run_apart(time_plain, workloads)
        figures["plain_start_s"] = round(start_s, 1)
        plain_seconds = list(seconds)
    began = time.monotonic()
    with run.progress.waiting("starting the target"):
        engine = Engine(run.options)
    with engine:
        figures["start_s"] = round(time.monotonic() - began, 1)
        figures["lengths"] = {}
        for length, seconds_of_plain in zip(run.lengths, plain_seconds, strict=True):
            samples = run.samples(length)
            manifest = run.manifest(samples)
            folder = run.scratch / str(length)
            engine.extract(run.workload(length).warm_up())
            passes = []
            for _ in range(run.passes):
                shutil.rmtree(folder, ignore_errors=True)
                with counted_shares(engine) as shares:
                    passes.append(extract(run, engine, samples, manifest, folder))
            seconds = median(passes)
            tokens = manifest.dataset.tokens
            lines = [shares.check(tokens), *check_store(folder, samples, manifest)]
            if length != run.lengths[0]:
                shutil.rmtree(folder)
            for line in lines:
                say(f"{length}: {line}")
            checked += [f"{length}: {line}" for line in lines]
            figures["lengths"][str(length)] = _rates(run, tokens, seconds, seconds_of_plain)
            say(f"{length}: {figures['lengths'][str(length)]}")
        figures |= _shares_of_time(profiled(run, engine))
        peaks = executor_of(engine).collective_rpc(peak_bytes, timeout=_PROBE_TIMEOUT_S)
        figures["peak_gib"] = [round(peak / 1024**3, 2) for peak in peaks]
        # What follows may hang, and a run that is ended prints no figures.
        say(
            f"all-reduce: {figures['all_reduce_share_of_time']:.1%} of the time, "
            f"{figures['all_reduce_share_of_kernels']:.1%} of that of all kernels; started in "
            f"{figures['start_s']} s; peak GiB of a rank: {figures['peak_gib']}"
        )
        alone = alone_and_together(run, engine)
        figures["alone"] = asdict(alone)
        checked.append(f"alone against in a full step: {alone}")
        say(checked[-1])
        if kill:
            after_kill, lines = kill_and_resume(run, engine)
            figures |= after_kill
            for line in lines:
                say(line)
            checked += lines
    return figures | {"checked": checked}


def _rates(run: Run, tokens: int, seconds: float, plain: float | None) -> dict[str, Any]:
    states = tokens * len(run.options.capture_points) * run.config["hidden_size"] * 2
    return {
        "tokens": tokens,
        "plain_tokens_per_s": plain and round(tokens / plain, 1),
        "tokens_per_s": round(tokens / seconds, 1),
        "ratio": plain and round(plain / seconds, 4),
        "bytes_per_s": round(states / seconds),
        "of_reference": round(tokens / seconds / REFERENCE_TOKENS_PER_S, 2),
    }


def _shares_of_time(profile: Profile) -> dict[str, Any]:
    """All-reduce's share includes waiting for ranks that come later; the time, the last commit."""
    return {
        "all_reduce_share_of_time": round(profile.communication / profile.seconds, 4),
        "all_reduce_share_of_kernels": round(profile.communication / profile.busy, 4),
        "busy_share_of_time": round(profile.busy / profile.seconds, 4),
        "profile": asdict(profile),
    }


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@click.option("--gpus", "--tp", "ranks", type=click.IntRange(min=1), default=8, help="Ranks.")
@click.option("--layers", type=click.IntRange(min=6), default=FULL_DEPTH, help="Decoder layers.")
@click.option("--cpu", is_flag=True, help="A tiny target of the same kind, for the CPU stack.")
@click.option("--tokens", type=click.IntRange(min=1), default=131_072, help="Of each length.")
@click.option("--lengths", default="512,2048", metavar="N,N", help="Tokens of a sample.")
@click.option("--max-tokens-per-step", type=click.IntRange(min=1), default=8192)
@click.option("--gpu-memory-utilization", type=click.FloatRange(0, 1, min_open=True), default=0.85)
@click.option("--repeat", type=click.IntRange(min=1), default=3, help="Passes; the median counts.")
@click.option("--no-plain", is_flag=True, help="Leave plain prefill out.")
@click.option("--no-kill", is_flag=True, help="Leave out the kill, and going on after it.")
@click.option("--out", metavar="FOLDER", help="Where states go for a while.  [default: temporary]")
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show the target's log and stack traces.")
def command(
    ranks: int,
    layers: int,
    cpu: bool,
    tokens: int,
    lengths: str,
    repeat: int,
    out: str | None,
    no_plain: bool,
    no_kill: bool,
    as_json: bool,
    **options: Any,
) -> None:
    try:
        sizes = tuple(int(length) for length in lengths.split(","))
    except ValueError:
        raise InputError(f"--lengths takes numbers with commas between, not {lengths!r}") from None
    if min(sizes) < 1 or 3 * max(sizes) > tokens:
        raise InputError(f"--tokens {tokens:,} must be at least three samples of each length")
    if out is not None:
        user_path(out).mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="eagle3-reference-", dir=out and user_path(out)))
    try:
        with stdout_for_result_only():
            model = write_reference_target(scratch, layers, tiny=cpu)
            points = capture_points_from_layers(captured_layers(layers), "after-layer", layers)
            run_ = Run(
                EngineOptions(
                    model=model,
                    capture_points=points,
                    tensor_parallel=ranks,
                    max_model_len=max(sizes),
                    dummy_weights=True,
                    **options,
                ),
                json.loads((model / "config.json").read_text(encoding="utf-8")),
                tokens,
                sizes,
                repeat,
                scratch,
                Progress(),
            )
            architecture = read_architecture(model)
            run_.progress.say(
                f"{model.name}: {architecture.num_layers} layers, hidden "
                f"{architecture.hidden_size}, {ranks} ranks, capture points {points}"
            )
            figures = reference_run(run_, plain=not no_plain, kill=not no_kill)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if as_json:
        click.echo(json.dumps({"target": model.name, "ranks": ranks, **figures}))
        return
    for key, value in figures.items():
        if key not in ("checked", "profile"):
            click.echo(f"{key}: {value}")


if __name__ == "__main__":
    run(command)
