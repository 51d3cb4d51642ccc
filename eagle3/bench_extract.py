"""Measures how fast states leave a target, compared with the target's plain prefill.

Exit codes: 0 done, 1 unexpected failure, 2 wrong option or model, 3 a target failed, 4 the scratch
folder or the scoreboard cannot be written, 130 interrupted, 143 ended by SIGTERM.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import click

from eagle3.command import Command, model_folder, run, stdout_for_result_only, user_path
from eagle3.errors import InputError, StoreError
from eagle3.extraction.options import parse_layers, parse_size, tokens_per_step_option
from eagle3.progress import Progress

_HELP = """Measure extraction against the plain prefill of the same target.

Each road runs the same random prompts in a process of its own: vLLM's LLM.generate of one token;
speculators' patched generator with one file a sample; and extract, until all states are committed.

\b
Exit codes:
  0    done
  1    unexpected failure
  2    an option or the model is wrong
  3    a target failed
  4    the scratch folder or the scoreboard cannot be written
  130  interrupted
  143  ended by SIGTERM
"""


@click.command(cls=Command, help=_HELP, context_settings={"show_default": True})
@click.option(
    "--model",
    default="smollm2",
    metavar="NAME|FOLDER",
    help="Target: a shipped model's name (smollm2) or the folder of a checkpoint.",
)
@click.option(
    "--config",
    metavar="NAME",
    help="In place of --model: a shape with random weights, such as kimi-k2.5-8-layers.",
)
@click.option("--dummy-weights", is_flag=True, help="Random weights in place of the model's.")
@click.option("--prompts", type=click.IntRange(min=1), default=64, help="Number of prompts.")
@click.option("--length", type=click.IntRange(min=1), default=512, help="Tokens of a prompt.")
@click.option(
    "--layers",
    callback=parse_layers,
    metavar="N,N,...",
    show_default="the three that vLLM's EAGLE-3 serving takes, and the last",
    help="Layers to capture: the states after layer N, counted from 0.",
)
@tokens_per_step_option
@click.option(
    "--tp", "tensor_parallel", type=click.IntRange(min=1), default=1, help="Tensor-parallel ranks."
)
@click.option(
    "--gpu-memory-utilization",
    type=click.FloatRange(min=0, max=1, min_open=True),
    default=0.8,
    help="Share of each GPU's memory for the target (no effect on a CPU).",
)
@click.option(
    "--ring-size",
    "ring_bytes",
    callback=parse_size,
    default="1GiB",
    metavar="SIZE",
    help="Host memory of each rank between the target and the disk, 2GiB at most.",
)
@click.option(
    "--writer-threads", type=click.IntRange(min=1), default=4, help="Threads of a rank that write."
)
@click.option(
    "--roads",
    default="plain,old,ours",
    metavar="ROAD,...",
    help="What to run, in this order; besides these, unchecked is ours without detectors.",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=1,
    help="Timed passes of a process, of which the median counts (the old road has one).",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=1,
    help="Times to run all roads, one after the other (the old one only once).",
)
@click.option(
    "--out",
    metavar="FOLDER",
    show_default="a temporary one",
    help="Where the states go until a pass is over; its disk is a part of what is measured.",
)
@click.option("--append", "scoreboard", metavar="FILE", help="Add a row to this scoreboard.")
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON, not a table.")
@click.option("-v", "--verbose", is_flag=True, help="Show the target's log and stack traces.")
def bench_extract(out: str | None, as_json: bool, scoreboard: str | None, **options: Any) -> None:
    progress = Progress()
    progress.say("bench_extract: extraction against plain prefill")
    scratch = _make_scratch(None if out is None else user_path(out))
    try:
        with stdout_for_result_only():
            figures = _measure(scratch, progress, **options)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    from eagle3.benchmark.extraction import scoreboard as board

    # First of all, since a scoreboard that cannot be written must not cost what was measured.
    click.echo(board.as_json(figures) if as_json else board.as_table(figures))
    if scoreboard is not None:
        board.append(figures, user_path(scoreboard))


def _make_scratch(parent: Path | None) -> Path:
    try:
        if parent is not None:
            parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="eagle3-bench-", dir=parent))
    except OSError as error:
        raise StoreError(
            f"cannot write to {error.filename or parent}: {error.strerror}; give another --out"
        ) from error


def _measure(
    scratch: Path,
    progress: Progress,
    *,
    model: str,
    config: str | None,
    dummy_weights: bool,
    prompts: int,
    length: int,
    layers: tuple[int, ...] | None,
    roads: str,
    repeat: int,
    rounds: int,
    **options: Any,
) -> Any:
    from eagle3.benchmark.extraction.measure import measure
    from eagle3.benchmark.extraction.roads import ROADS
    from eagle3.benchmark.extraction.workload import Workload, write_target
    from eagle3.engine.architecture import read_architecture
    from eagle3.engine.capture_points import capture_points_from_layers, default_capture_points
    from eagle3.engine.options import EngineOptions, check_options

    folder = model_folder(model) if config is None else write_target(config, scratch)
    architecture = read_architecture(folder)
    if layers is None:
        points = default_capture_points(architecture.num_layers)
    else:
        points = capture_points_from_layers(layers, "after-layer", architecture.num_layers)
    names = roads.split(",")
    if set(names) - set(ROADS) or len(set(names)) < len(names):
        raise InputError(f"--roads takes {', '.join(ROADS)}, each once at most, not {roads!r}")
    workload = Workload(
        options=EngineOptions(
            model=folder,
            capture_points=points,
            max_model_len=length,
            dummy_weights=dummy_weights or config is not None,
            **options,
        ),
        vocab_size=architecture.vocab_size,
        hidden_size=architecture.hidden_size,
        prompts=prompts,
        length=length,
        passes=repeat,
        scratch=scratch,
    )
    check_options(workload.options, architecture)
    return measure(workload, names, rounds, progress)


if __name__ == "__main__":
    run(bench_extract)
