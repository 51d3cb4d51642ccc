"""Trains speculators' own draft on what a training of ours had, to compare what they are worth.

Exit codes: 0 done, 1 unexpected failure, 2 wrong option or run, 4 a folder cannot be used, 130
interrupted, 143 ended by SIGTERM.
"""

import json
import os
from contextlib import nullcontext
from dataclasses import asdict

import click

from eagle3.command import Command, run, stdout_for_result_only, user_path
from eagle3.progress import Progress

_HELP = """Train speculators' own draft on the states of a training of ours.

The trainer is that of the speculators in this stack (0.3.0), with its own loss and defaults. Store,
samples, draft vocabulary, number and size of the steps, learning rate and schedule are those of the
training in --run, so that the drafts differ by their trainers alone. What it makes is exported, for
evaluate --beside.

\b
Exit codes:
  0    done
  1    unexpected failure
  2    an option or the run is wrong
  4    the store cannot be read, or the output folder is not empty
  130  interrupted
  143  ended by SIGTERM
"""


@click.command(cls=Command, name="train_peer", help=_HELP, context_settings={"show_default": True})
@click.option(
    "--run", "run_folder", default="./eagle3-draft", metavar="FOLDER", help="A training's --out."
)
@click.option("--out", default="./eagle3-peer", metavar="FOLDER", help="Where the draft goes.")
@click.option(
    "--learning-rate",
    type=click.FloatRange(min=0, min_open=True),
    show_default="the run's",
    help="Highest learning rate.",
)
@click.option("--unroll-steps", type=click.IntRange(min=1), default=3, help="Unrolled steps.")
@click.option(
    "--unroll-decay",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    help="Weight of each, relative to the one before.",
)
@click.option(
    "--feed",
    type=click.Choice(["true", "argmax"]),
    default="argmax",
    help="What later steps are fed: the true tokens, or the draft's own guesses.",
)
@click.option(
    "--noise",
    type=click.FloatRange(min=0),
    default=0.05,
    help="Uniform noise from -X to X on all states.",
)
@click.option(
    "--norm-before-residual/--no-norm-before-residual",
    default=True,
    help="Begin the layer's residual stream behind the norm of the state.",
)
@click.option(
    "--compile/--no-compile",
    "compiled",
    default=True,
    help="Compile its model on a GPU, as its trainer does. A CPU never does.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, not a table.")
@click.option("-v", "--verbose", is_flag=True, help="Show what speculators says, and stack traces.")
def train_peer(
    run_folder: str, out: str, compiled: bool, as_json: bool, verbose: bool, **options
) -> None:
    progress = Progress()
    with stdout_for_result_only():
        # Imported only now: --help must not wait seconds for torch.
        import torch

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if not compiled or device.type == "cpu":
            # Read when torch compiles for the first time; its code does not compile for a CPU.
            os.environ["TORCHDYNAMO_DISABLE"] = "1"
            torch._dynamo.config.disable = True
        from eagle3.engine.quiet import quiet_libraries

        with nullcontext() if verbose else quiet_libraries():
            from eagle3.benchmark.training.peer_run import PeerRun, train_peer_draft

            request = PeerRun(run=user_path(run_folder), out=user_path(out), **options)
            progress.say(f"train_peer: speculators' draft on the data of {request.run}")
            with progress.waiting("training it"):
                report = train_peer_draft(request, device)
    fields = {**asdict(report), "draft": str(report.draft)}
    if as_json:
        click.echo(json.dumps(fields))
        return
    rows = {
        "trainer": f"speculators {report.version}",
        "steps": f"{report.steps:,}, last loss {report.loss:.3f}",
        "tokens/s": f"{report.tokens_per_s:,.0f}, compilation included",
        "draft": str(report.draft),
    }
    click.echo("\n".join(f"{name:<10}{value}" for name, value in rows.items()))


if __name__ == "__main__":
    run(train_peer)
