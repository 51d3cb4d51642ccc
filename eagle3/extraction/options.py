"""The options of the commands that have to do with an extraction, and what they make."""

import argparse
import os
import re
import shlex
import sys
from collections.abc import Callable
from typing import Any

import click

from eagle3.command import data_path, model_folder, shipped_path, user_path
from eagle3.engine.options import (
    CPU_TOKENS_PER_STEP,
    DEFAULT_STEP_TIMEOUT_S,
    GPU_TOKENS_PER_STEP,
    default_tokens_per_step,
)
from eagle3.errors import InputError
from eagle3.extraction.request import ExtractionRequest
from eagle3.store.part import Part, parse_part, part_of_process

_SHIPPED_DATA = "examples/conversations.jsonl"
_UNITS = {"": 1}
_UNITS |= {f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", start=1)}
_UNITS |= {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", start=1)}


def make_request(
    name: str, *, model: str, data: str | None, out: str, **options: Any
) -> ExtractionRequest:
    """What the options of the command `name` ask for. Raises InputError for a missing model."""
    return ExtractionRequest(
        model=model_folder(model),
        data=data_path(data) if data else shipped_path(_SHIPPED_DATA),
        out=user_path(out),
        command=shlex.join([name, *sys.argv[1:]]),
        **options,
    )


def options_of_target(command: str) -> list[str]:
    """Of an extraction's command line, as a manifest has it, what any run of the target needs."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--tp")
    parser.add_argument("--trust-remote-code", action="store_true")
    given, _ = parser.parse_known_args(shlex.split(command))
    options = ["--tp", given.tp] if given.tp else []
    return [*options, "--trust-remote-code"] if given.trust_remote_code else options


def parse_layers(
    context: click.Context, option: click.Parameter, value: str | None
) -> tuple[int, ...] | None:
    if value is None:
        return None
    try:
        return tuple(int(layer) for layer in value.split(","))
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not whole numbers with commas between, such as 2,30,58,60"
        ) from None


def parse_size(context: click.Context, option: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    match = re.fullmatch(r"(\d+)\s*([KMGT]iB|[kMGT]B|)", value)
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    if not size:
        raise click.BadParameter(f"{value!r} is not a size such as 1GiB or 256MiB")
    return size


def _parse_part(context: click.Context, option: click.Parameter, value: str | None) -> Part:
    try:
        return part_of_process(os.environ) if value is None else parse_part(value)
    except InputError as error:
        raise click.BadParameter(str(error)) from None


tokens_per_step_option = click.option(
    "--max-tokens-per-step",
    type=click.IntRange(min=1),
    default=default_tokens_per_step,
    show_default=f"{CPU_TOKENS_PER_STEP} on a CPU, {GPU_TOKENS_PER_STEP} on a GPU",
    help="Tokens the target runs at once.",
)

_OPTIONS = (
    click.option(
        "--model",
        default="smollm2",
        metavar="NAME|FOLDER",
        help="Target: a shipped model's name (smollm2) or the folder of a checkpoint.",
    ),
    click.option(
        "--data",
        metavar="NAME|FILE|FOLDER",
        show_default="the shipped conversations",
        help="JSONL: `messages`, `conversations` (ShareGPT), or `input_ids` with `loss_mask`; "
        "a folder that prepare wrote; or the name of shipped data (heldout, smollm2-selfgen).",
    ),
    click.option(
        "--layers",
        callback=parse_layers,
        metavar="N,N,...",
        show_default="the three that vLLM's EAGLE-3 serving takes, and the last",
        help="Layers to capture, in this order.",
    ),
    click.option(
        "--layer-convention",
        type=click.Choice(["after-layer", "vllm"]),
        default="after-layer",
        help="What a number in --layers means: after-layer 2 = vllm 3 = after three layers.",
    ),
    click.option("--out", default="./eagle3-out", metavar="FOLDER", help="Where the states go."),
    click.option(
        "--tp",
        "tensor_parallel",
        type=click.IntRange(min=1),
        default=1,
        help="Tensor-parallel ranks of the target.",
    ),
    click.option(
        "--max-model-len",
        type=click.IntRange(min=1),
        show_default="2048, or less where the target takes less",
        help="Longest sample in tokens; a longer one is an error without --truncate.",
    ),
    tokens_per_step_option,
    click.option(
        "--limit",
        type=click.IntRange(min=1),
        show_default="all",
        help="Read only so many samples of the data.",
    ),
    click.option(
        "--seed",
        # NumPy's, and vLLM's, largest.
        type=click.IntRange(min=0, max=2**32 - 1),
        default=0,
        help="Seed of the target.",
    ),
    click.option(
        "--gpu-memory-utilization",
        type=click.FloatRange(min=0, max=1, min_open=True),
        default=0.8,
        help="Share of each GPU's memory for the target (no effect on a CPU).",
    ),
    click.option(
        "--fp8-states",
        is_flag=True,
        help="Store states as 8-bit floats with a scale for each row: half the disk, rounded.",
    ),
    click.option(
        "--shard-size",
        "shard_bytes",
        callback=parse_size,
        default="1GiB",
        metavar="SIZE",
        help="Size of a shard, such as 256MiB; what a shard holds is committed together.",
    ),
    click.option(
        "--disk-budget",
        callback=parse_size,
        metavar="SIZE",
        show_default="none",
        help="Shards that may lie there at a time; then wait until training removes some.",
    ),
    click.option(
        "--ring-size",
        "ring_bytes",
        callback=parse_size,
        default="1GiB",
        metavar="SIZE",
        help="Host memory of each rank between the target and the disk, 2GiB at most.",
    ),
    click.option(
        "--step-timeout",
        "step_timeout_s",
        type=click.FloatRange(min=0, min_open=True),
        default=DEFAULT_STEP_TIMEOUT_S,
        metavar="SECONDS",
        help="Longest time a step may take before the target counts as hung.",
    ),
    click.option(
        "--shard",
        "part",
        callback=_parse_part,
        metavar="I/N",
        show_default="as torchrun or SLURM say, else 0/1",
        help="Do share I of N of the work, for N machines that write to one folder.",
    ),
    click.option(
        "--on-bad",
        type=click.Choice(["fail", "quarantine"]),
        default="fail",
        help="States with NaN, zero, constant or doubled rows: stop, or set the sample aside.",
    ),
    click.option("--truncate", is_flag=True, help="Cut samples longer than --max-model-len."),
    click.option(
        "--prefetch",
        is_flag=True,
        help="Read the weights ahead of the loader, many at once: for a folder on a network.",
    ),
    click.option(
        "--trust-remote-code",
        is_flag=True,
        help="Run the Python code that the target's folder brings (Kimi-K2.5); read it before.",
    ),
)


def extraction_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives `command` all that `make_request` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
