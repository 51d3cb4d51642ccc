"""Extracts hidden states from a running target model into a folder of samples.

Exit codes: 0 done, 1 unexpected failure, 2 wrong option, model or data, 3 the target failed,
4 the output folder cannot be used, 130 interrupted.
"""

import json
import os
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from eagle3.command import (
    Command,
    data_path,
    model_folder,
    run,
    shipped_path,
    stdout_for_result_only,
    user_path,
)
from eagle3.errors import InputError
from eagle3.extraction.request import ExtractionRequest
from eagle3.progress import Progress
from eagle3.store.part import Part, parse_part, part_of_process

if TYPE_CHECKING:
    from eagle3.extraction.extract import ExtractionReport

_SHIPPED_DATA = "examples/conversations.jsonl"
_UNITS = {"": 1}
_UNITS |= {f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", start=1)}
_UNITS |= {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", start=1)}
_HELP = """Extract hidden states from a running target model.

The target runs in vLLM; the residual stream after the chosen layers is written to shards in the
output folder. All input is checked before the target is started. The same command again goes on
where it stopped.

\b
Exit codes:
  0    done
  1    unexpected failure
  2    an option, the model or the data is wrong
  3    the target failed while running
  4    the output folder cannot be written, or holds something else
  130  interrupted (what was committed stays)
"""


def _parse_layers(
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


def _parse_size(context: click.Context, option: click.Parameter, value: str) -> int:
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


@click.command(cls=Command, help=_HELP, context_settings={"show_default": True})
@click.option(
    "--model",
    default="smollm2",
    metavar="NAME|FOLDER",
    help="Target: a shipped model's name (smollm2) or the folder of a checkpoint.",
)
@click.option(
    "--data",
    metavar="FILE",
    show_default="the shipped conversations",
    help="JSONL: `messages`, `conversations` (ShareGPT), or `input_ids` with `loss_mask`.",
)
@click.option(
    "--layers",
    callback=_parse_layers,
    metavar="N,N,...",
    show_default="the three that vLLM's EAGLE-3 serving takes, and the last",
    help="Layers to capture, in this order.",
)
@click.option(
    "--layer-convention",
    type=click.Choice(["after-layer", "vllm"]),
    default="after-layer",
    help="What a number in --layers means: after-layer 2 = vllm 3 = after three layers.",
)
@click.option("--out", default="./eagle3-out", metavar="FOLDER", help="Where the states go.")
@click.option(
    "--tp",
    "tensor_parallel",
    type=click.IntRange(min=1),
    default=1,
    help="Tensor-parallel ranks of the target.",
)
@click.option(
    "--max-model-len",
    type=click.IntRange(min=1),
    show_default="2048, or less where the target takes less",
    help="Longest sample in tokens; a longer one is an error without --truncate.",
)
@click.option(
    "--max-tokens-per-step",
    type=click.IntRange(min=1),
    default=2048,
    help="Tokens the target runs at once.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    show_default="all",
    help="Read only so many samples of the data.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the target.")
@click.option(
    "--gpu-memory-utilization",
    type=click.FloatRange(min=0, max=1, min_open=True),
    default=0.8,
    help="Share of each GPU's memory for the target (no effect on a CPU).",
)
@click.option(
    "--shard-size",
    "shard_bytes",
    callback=_parse_size,
    default="1GiB",
    metavar="SIZE",
    help="Size of a shard, such as 256MiB; what a shard holds is committed together.",
)
@click.option(
    "--shard",
    "part",
    callback=_parse_part,
    metavar="I/N",
    show_default="as torchrun or SLURM say, else 0/1",
    help="Do share I of N of the work, for N machines that write to one folder.",
)
@click.option(
    "--on-bad",
    type=click.Choice(["fail", "quarantine"]),
    default="fail",
    help="States with NaN, zero, constant or doubled rows: stop, or set the sample aside.",
)
@click.option("--truncate", is_flag=True, help="Cut samples longer than --max-model-len.")
@click.option(
    "--trust-remote-code",
    is_flag=True,
    help="Run the Python code that the target's folder brings (Kimi-K2.5); read it before.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, not a table.")
@click.option("-v", "--verbose", is_flag=True, help="Show the target's log and stack traces.")
def extract(model: str, data: str | None, out: str, as_json: bool, **options: Any) -> None:
    progress = Progress()
    progress.say(f"extract: states of {model} into {user_path(out)}")
    progress.say("checking the target and the data ...")
    request = ExtractionRequest(
        model=model_folder(model),
        data=data_path(data) if data else shipped_path(_SHIPPED_DATA),
        out=user_path(out),
        command=shlex.join(["extract", *sys.argv[1:]]),
        **options,
    )
    with stdout_for_result_only():
        # Imported only now: the first line must not wait seconds for torch and vLLM.
        from eagle3.extraction.extract import extract as extract_states

        report = extract_states(request, progress)
    click.echo(_as_json(report) if as_json else _as_table(report))


def _as_json(report: "ExtractionReport") -> str:
    return json.dumps(
        {
            "samples": report.samples,
            "tokens": report.tokens,
            "tokens_per_s": report.tokens_per_s and round(report.tokens_per_s, 1),
            "layers": report.layers,
            "shape": report.shape,
            "quarantined": report.quarantined,
            "out": str(report.out),
        }
    )


def _as_table(report: "ExtractionReport") -> str:
    rate = report.tokens_per_s
    rows = {
        "samples": f"{report.samples:,}",
        "tokens": f"{report.tokens:,}",
        "tokens/s": f"{rate:,.0f}" if rate else "nothing to do: all samples were there",
        "layers": ", ".join(map(str, report.layers)),
        "shape": f"[T, {report.shape[1]}, {report.shape[2]}] bfloat16 a sample",
        "bytes": f"{report.size:,}",
        "set aside": f"{report.quarantined:,} (quarantine.jsonl)" if report.quarantined else "0",
        "where": str(report.out),
    }
    table = "\n".join(f"{name:<10}{value}" for name, value in rows.items())
    return (
        f"{table}\n\nnext: look at what is in it, and check every byte with --verify\n"
        f"  tools/bazel run //eagle3:inspect -- {shlex.quote(str(report.out))}"
    )


if __name__ == "__main__":
    run(extract)
