"""Measures what a draft is worth: how many of its tokens the target accepts.

Exit codes: 0 done, 1 unexpected failure, 2 wrong option, draft or data, 3 the target failed,
130 interrupted, 143 ended by SIGTERM.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eagle3.command import (
    Command,
    data_path,
    model_folder,
    run,
    stdout_for_result_only,
    user_path,
)
from eagle3.errors import EngineError
from eagle3.progress import Progress

if TYPE_CHECKING:
    from eagle3.evaluation.request import EvaluationRequest

_HELP = """Measure how much of a draft the target accepts.

The draft proposes chains of tokens, the target verifies each chain in one pass, and the output
stays the target's own, which is checked. Beside the draft runs one that has learnt nothing.

On a GPU (--config=cuda128) vLLM serves the exported draft; elsewhere an own loop does the same
with transformers.

\b
Exit codes:
  0    done, whatever the draft is worth
  1    unexpected failure
  2    an option, the draft or the data is wrong
  3    the target failed while running, with the draft or one beside it
  130  interrupted
  143  ended by SIGTERM
"""


def _parse_batches(context: click.Context, option: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        batches = tuple(sorted({int(batch) for batch in value.split(",")} | {1}))
    except ValueError:
        batches = (0,)
    if batches[0] < 1:
        raise click.BadParameter(f"{value!r} is not whole numbers such as 1,8,32")
    return batches


def _parse_beside(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> dict[str, Path]:
    beside: dict[str, Path] = {}
    for value in values:
        name, _, path = value.rpartition("=")
        folder = user_path(path)
        # What train leaves is called after its run, not `draft`.
        named = folder.parent if folder.name == "draft" else folder
        name = name or named.name
        if name in beside:
            raise click.BadParameter(f"two drafts are called {name}: give NAME=FOLDER")
        beside[name] = folder
    return beside


@click.command(cls=Command, help=_HELP, context_settings={"show_default": True})
@click.option(
    "--draft",
    default="./eagle3-draft/draft",
    metavar="FOLDER",
    help="Exported draft, as train leaves it.",
)
@click.option(
    "--model",
    metavar="NAME|FOLDER",
    show_default="the one that the draft names",
    help="Target: a shipped model's name (smollm2) or the folder of a checkpoint.",
)
@click.option(
    "--data",
    default="heldout",
    metavar="NAME|FILE|FOLDER",
    help="Questions: shipped ones (heldout), JSONL, or a dataset of prepare. `kind` is told apart.",
)
@click.option(
    "--shuffled",
    metavar="FOLDER",
    show_default="none",
    help="A draft trained on shuffled states, as a second floor.",
)
@click.option(
    "--beside",
    callback=_parse_beside,
    multiple=True,
    metavar="[NAME=]FOLDER",
    show_default="none",
    help="Another draft, to compare. Can be given more than once.",
)
@click.option(
    "--backend",
    type=click.Choice(["auto", "own", "vllm"]),
    default="auto",
    help="What runs the target: vLLM where it can speculate, else the own loop.",
)
@click.option(
    "--prompts",
    "limit",
    type=click.IntRange(min=1),
    default=16,
    help="Take only so many prompts of the data.",
)
@click.option(
    "--reasoning",
    type=click.Choice(["keep", "drop"]),
    show_default="drop; of a dataset as it was prepared",
    help="Whether the questions of a file ask the target to think before it answers.",
)
@click.option(
    "--max-new-tokens",
    type=click.IntRange(min=2),
    default=64,
    help="Longest answer in tokens.",
)
@click.option(
    "--speculative-tokens",
    type=click.IntRange(min=1),
    default=5,
    help="Length K of the drafted chains.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(min=0),
    default=1.0,
    help="Temperature of the pass beside the greedy one; 0 leaves it out.",
)
@click.option(
    "--batches",
    callback=_parse_batches,
    default="1,8,32",
    metavar="N,N,...",
    help="Prompts at once, for the speeds that vLLM is timed at.",
)
@click.option(
    "--speed/--no-speed",
    "timed",
    default=True,
    help="Tell speeds, too. Without, vLLM starts sooner and runs the prompts of a kind at once.",
)
@click.option(
    "--tp",
    "tensor_parallel",
    type=click.IntRange(min=1),
    default=1,
    help="Tensor-parallel ranks of the target (vLLM).",
)
@click.option(
    "--gpu-memory-utilization",
    type=click.FloatRange(min=0, max=1, min_open=True),
    default=0.8,
    help="Share of each GPU's memory for the target (vLLM).",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    help="Seed of the sampling, and of which prompts of a dataset are taken.",
)
@click.option(
    "--trust-remote-code",
    is_flag=True,
    help="Run the Python code that the target's folder brings (Kimi-K2.5); read it before.",
)
@click.option(
    "--preflight/--no-preflight",
    default=True,
    help="Stop before vLLM loads the target, where that would fail.",
)
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON, not a table.")
@click.option("-v", "--verbose", is_flag=True, help="Show the target's log and stack traces.")
def evaluate(
    draft: str,
    model: str | None,
    data: str,
    shuffled: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    progress = Progress()
    progress.say(f"evaluate: {user_path(draft)}")
    with stdout_for_result_only():
        # Imported only now: the first line must not wait seconds for torch.
        from eagle3.evaluation import table
        from eagle3.evaluation.evaluate import evaluate as evaluate_draft
        from eagle3.evaluation.request import EvaluationRequest

        request = EvaluationRequest(
            draft=user_path(draft),
            data=data_path(data),
            model=model_folder(model) if model else None,
            shuffled=user_path(shuffled) if shuffled else None,
            **options,
        )
        report = evaluate_draft(request, progress)
    if as_json:
        click.echo(json.dumps(table.as_json(report)))
    else:
        click.echo(table.as_table(report))
        if report.clearly_wins and report.lossless:
            click.echo(f"\nnext: serve it, on a GPU\n  {_serve_command(request)}")
    if report.failed:
        raise EngineError(f"not measured: {', '.join(report.failed)} (the report says why)")


def _serve_command(request: "EvaluationRequest") -> str:
    """What serves the draft as it was measured."""
    from eagle3.draft.export import serve_command

    options = ["--speculative-tokens", str(request.speculative_tokens)]
    if request.model is not None:
        options += ["--model", str(request.model)]
    vllm_options = ["--trust-remote-code"] if request.trust_remote_code else []
    if request.tensor_parallel > 1:
        vllm_options += ["--tensor-parallel-size", str(request.tensor_parallel)]
    return serve_command(request.draft, *options, vllm_options=vllm_options)


if __name__ == "__main__":
    run(evaluate)
