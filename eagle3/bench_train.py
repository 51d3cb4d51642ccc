"""Measures how fast a draft trains here, with random weights and states.

Exit codes: 0 measured, 1 unexpected failure, 2 wrong option, 130 interrupted, 143 ended by SIGTERM.
"""

import json
from typing import TYPE_CHECKING, Any

import click

from eagle3.command import Command, run, stdout_for_result_only, user_path
from eagle3.errors import InputError
from eagle3.progress import Progress

if TYPE_CHECKING:
    from eagle3.benchmark.training.ours import Parallel

_HELP = """Measure how fast a draft trains here, with random weights and states.

One training step is measured as `train` does it: the unrolled loss, gradients, clipping and AdamW,
on the GPU if there is one. Beside it, each in a process of its own, speculators' step of the same
shape: the releases in --baseline-site, or the one of this stack.

\b
Exit codes:
  0    measured
  1    unexpected failure
  2    an option is wrong
  130  interrupted
  143  ended by SIGTERM
"""


@click.command(cls=Command, name="bench_train", help=_HELP, context_settings={"show_default": True})
@click.option(
    "--shape",
    type=click.Choice(["large", "small"]),
    help="The draft of an 8B target, or one for a CPU.  [default: large on a GPU]",
)
@click.option("--tokens", type=click.IntRange(min=1), help="Tokens a step.  [default: 8192 or 256]")
@click.option("--unroll-steps", type=click.IntRange(min=1), default=3, help="Unrolled steps.")
@click.option("--train-head", is_flag=True, help="Train the head, too.")
@click.option("--fp8", is_flag=True, help="Multiply in fp8 in the decoder layer; needs a GPU.")
@click.option("--rounds", type=click.IntRange(min=1), default=20, help="Steps that are timed.")
@click.option(
    "--baseline-site",
    "baseline_sites",
    multiple=True,
    metavar="FOLDER",
    show_default="this stack's",
    help="Folder with another release of speculators and what it needs, but torch. Can be given "
    "more than once.",
)
@click.option("--no-baseline", is_flag=True, help="Measure our step alone.")
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    help="Measure so many processes, too, one a GPU, each with --tokens.",
)
@click.option(
    "--parallel",
    type=click.Choice(["ddp", "fsdp"]),
    default="ddp",
    help="Each process holds all of the draft, or a part of it.",
)
@click.option("--profile", metavar="FILE", help="Write where the GPU's time of one step goes.")
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show stack traces.")
def bench_train(
    shape: str | None,
    tokens: int | None,
    unroll_steps: int,
    train_head: bool,
    fp8: bool,
    rounds: int,
    baseline_sites: tuple[str, ...],
    no_baseline: bool,
    processes: int,
    parallel: "Parallel",
    profile: str | None,
    as_json: bool,
    verbose: bool,
) -> None:
    sites = tuple(user_path(site) for site in baseline_sites)
    for site in sites:
        if not site.is_dir():
            raise InputError(f"no folder {site}; --baseline-site takes one that holds speculators")
    table = user_path(profile) if profile else None
    if table and not table.parent.is_dir():
        raise InputError(f"no folder {table.parent} for --profile; make it, or give another")
    with stdout_for_result_only():
        # Imported only now: --help must not wait seconds for torch.
        from eagle3.benchmark.training.report import Bench, bench

        report = bench(
            Bench(
                size=shape,
                tokens=tokens,
                unroll_steps=unroll_steps,
                train_head=train_head,
                fp8=fp8,
                rounds=rounds,
                baseline=not no_baseline,
                baseline_sites=sites,
                profile=table,
                processes=processes,
                parallel=parallel,
            ),
            Progress(),
        )
    for line in _lines(report):
        click.echo(line, err=as_json)
    if as_json:
        click.echo(json.dumps(report))


def _lines(report: dict[str, Any]) -> list[str]:
    head = "trained" if report["train_head"] else "frozen"
    lines = [
        f"{report['device']}, torch {report['torch']}: {report['tokens']:,} tokens a step, "
        f"{report['unroll_steps']} unrolled, head {head}"
        f"{', fp8' if report['fp8'] else ''}",
        f"{report['tokens_per_s']:,.0f} tokens/s, {report['step_ms']:.1f} ms a step, "
        f"compiled in {report['compile_s']:.0f} s",
    ]
    if report["peak_gib"] is not None:
        lines.append(f"peak {report['peak_gib']:.1f} GiB")
    if report["processes_ratio"] is not None:
        lines.append(
            f"{report['processes']} processes ({report['parallel']}): "
            f"{report['processes_tokens_per_s']:,.0f} tokens/s, "
            f"{report['processes_ratio']:.2f} x one"
        )
    if report["mfu"] is not None:
        lines.append(f"{report['mfu']:.0%} of the device's peak rate in bf16")
    for peer in report["baselines"]:
        lines.append(
            f"{peer['name']}: {peer['tokens_per_s']:,.0f} tokens/s; ours is {peer['ratio']:.2f} x"
        )
    lines += [f"no baseline: {reason}" for reason in report["baselines_failed"]]
    return lines


if __name__ == "__main__":
    run(bench_train)
