"""Trains an EAGLE-3 draft on the states in a store, and exports it.

Exit codes: 0 done, 1 unexpected failure, 2 wrong option, configuration or target, 4 the store or
the output folder cannot be used, 130 interrupted, 143 ended by SIGTERM.
"""

import json
import os
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from eagle3.command import (
    Command,
    model_folder,
    next_command,
    run,
    shipped_path,
    stdout_for_result_only,
    user_path,
)
from eagle3.progress import Progress
from eagle3.training.config import TrainConfig
from eagle3.training.options import config_options
from eagle3.training.settings import make_config, read_settings, settings_of_flags

if TYPE_CHECKING:
    from eagle3.training.distributed import Processes
    from eagle3.training.plan import TrainingPlan
    from eagle3.training.train import TrainReport

# A laptop cannot train the draft of a large target: without a GPU, this file's are the defaults.
_CPU_CONFIG = "examples/train_on_cpu.yaml"
_HELP = f"""Train an EAGLE-3 draft on hidden states.

Without arguments it trains on what extract wrote into this folder. The same command again goes on
where it stopped. Options can stand in a YAML file, too, which any run writes into its folder as
config.yaml. Without a GPU, defaults are those of {_CPU_CONFIG}.

\b
Exit codes:
  0    done
  1    unexpected failure
  2    an option, the configuration or the target is wrong
  4    the store cannot be read, or the output folder holds something else
  130  interrupted (a checkpoint was written)
  143  ended by SIGTERM (a checkpoint was written)
"""


@click.command(cls=Command, help=_HELP, context_settings={"show_default": True})
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    show_default="none",
    help="YAML with the options below; flags win over it.",
)
@config_options
@click.option(
    "--processes",
    "count",
    type=click.IntRange(min=1),
    show_default="1, or as torchrun or SLURM say",
    help="Processes to start on this machine, one a GPU.",
)
@click.option("--dry-run", is_flag=True, help="Say what memory and time it takes, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, not a table.")
@click.option("-v", "--verbose", is_flag=True, help="Show stack traces.")
def train(
    config_file: str | None,
    count: int | None,
    dry_run: bool,
    as_json: bool,
    verbose: bool,
    **flags: Any,
) -> None:
    # Those that are started find themselves with a rank.
    if count is not None and count > 1 and "RANK" not in os.environ:
        from eagle3.training.launch import launch

        # Descriptor 1 is stderr by now, and the result is theirs to print.
        os.dup2(sys.stdout.fileno(), 1)
        sys.exit(launch(count, "eagle3.train", sys.argv[1:]))
    with stdout_for_result_only():
        # Imported only now: --help must not wait seconds for torch.
        from eagle3.training.distributed import joined_processes
        from eagle3.training.train import prepare_training, train_draft

        with joined_processes() as processes:
            progress = Progress() if processes.is_first else _Silence()
            config = _read_config(config_file, flags, processes)
            progress.say(f"train: a draft from {config.data.store} into {config.run.out}")
            plan = prepare_training(config, processes, progress)
            with progress.reminding("packing the first epoch"):
                _announce(plan, progress)
            if dry_run:
                result = _describe_needs(plan, processes, as_json=as_json)
            else:
                report = train_draft(plan, processes, progress)
                result = report and (_as_json(report) if as_json else _as_table(report, plan))
            first = processes.is_first
    if first:
        click.echo(result)


class _Silence(Progress):
    """For all processes but the first."""

    def say(self, line: str) -> None:
        pass


def _read_config(
    config_file: str | None, flags: dict[str, Any], processes: "Processes"
) -> TrainConfig:
    """The configuration, with absolute paths."""
    layers = []
    if config_file is not None:
        layers.append(read_settings(user_path(config_file)))
    elif processes.device.type == "cpu":
        layers.append(read_settings(shipped_path(_CPU_CONFIG)))
    given = {key: value for key, value in flags.items() if value is not None}
    config = make_config(*layers, settings_of_flags(given))
    data, shape, run_ = config.data, config.draft, config.run
    return replace(
        config,
        data=replace(data, store=_path(data.store), validation_store=_path(data.validation_store)),
        draft=replace(shape, frequencies=_path(shape.frequencies)),
        run=replace(run_, out=_path(run_.out), model=run_.model and str(model_folder(run_.model))),
    )


def _path(path: str | None) -> Any:
    return path and str(user_path(path))


def _announce(plan: "TrainingPlan", progress: Progress) -> None:
    training, draft, held_out = plan.training, plan.draft, _describe_held_out(plan)
    if plan.follows:
        store, dataset = training.store, training.store.manifest.dataset
        progress.say(
            f"data: following {store.folder}: {len(store.ids):,} samples are there of "
            f"{dataset.samples:,} to come, {dataset.tokens:,} tokens; {held_out}"
        )
    else:
        if not training.store.is_complete:
            progress.say(f"data: {training.store.folder} is not complete; extract goes on with it")
        progress.say(f"data: {len(training.ids):,} samples, {training.tokens:,} tokens; {held_out}")
    _warn_of_split_samples(plan, progress)
    progress.say(
        f"draft: hidden {draft.hidden_size}, points {', '.join(map(str, draft.capture_points))}, "
        f"vocabulary {draft.draft_vocab_size:,} of {draft.vocab_size:,}, which covers "
        f"{plan.coverage:.1%} of what is supervised"
    )
    progress.say(
        f"steps: {plan.steps:,} of {plan.config.data.tokens_per_step:,} tokens in "
        f"{plan.batches_per_step} batches of {plan.capacity:,}, {plan.batches_per_epoch:,} batches "
        f"an epoch, unrolled {plan.config.unroll.unroll_steps} times"
    )


def _describe_held_out(plan: "TrainingPlan") -> str:
    """What is validated with, and what else is not trained on."""
    validation, by = plan.validation, plan.held_out_by
    said = []
    if by is not None:
        where = f"of {by}" if by == "--validation-store" else f"held out by {by}"
        said.append(f"{len(validation.ids):,} samples, {validation.tokens:,} tokens {where}")
        if len(plan.measured.ids) < len(validation.ids):
            said[0] += f", of which a validation measures {plan.measured.tokens:,} tokens"
    marked = plan.training.store.manifest.dataset.held_out
    if marked and by != "prepare":
        said.append(
            f"{marked.samples:,} samples, {marked.tokens:,} tokens held out by prepare, which are "
            "not trained on"
        )
    return "; ".join(said) or "none held out"


def _warn_of_split_samples(plan: "TrainingPlan", progress: Progress) -> None:
    """With a process on each GPU a batch is easily shorter than the samples."""
    longest, whole = max(plan.training.lengths, default=0), plan.capacity
    if longest > whole:
        count = sum(length > whole for length in plan.training.lengths)
        progress.say(
            f"data: {count:,} samples are split, since a batch has {whole:,} tokens: what follows "
            f"loses its context; --tokens-per-step {longest * plan.batches_per_step} keeps them "
            "whole"
        )


def _describe_needs(plan: "TrainingPlan", processes: "Processes", *, as_json: bool) -> str:
    from eagle3.extraction.size import readable_size
    from eagle3.training.arithmetic import compute_dtype, expected_rate
    from eagle3.training.memory import plan_memory, trained_parameters

    dtype = compute_dtype(processes.device)
    memory = plan_memory(plan, processes.count, dtype)
    config = plan.config
    rate = processes.count * expected_rate(
        plan.draft,
        config.unroll.unroll_steps,
        processes.device,
        dtype,
        train_head=config.draft.train_head,
    )
    tokens = plan.steps * config.data.tokens_per_step
    needs = {
        "parameters": trained_parameters(plan.draft, train_head=config.draft.train_head),
        "steps": plan.steps,
        "tokens": tokens,
        "tokens_per_s": round(rate),
        "seconds": round(tokens / rate),
        "bytes": {**asdict(memory), "total": memory.total},
    }
    if as_json:
        return json.dumps(needs)
    rows = {
        "trained": f"{needs['parameters']:,} parameters",
        "steps": f"{plan.steps:,}, {tokens:,} tokens",
        "time": f"about {tokens / rate / 60:,.0f} minutes, at {rate:,.0f} tokens/s",
        "memory": f"about {readable_size(memory.total)} a device, of which",
    }
    rows |= {f"  {name}": readable_size(size) for name, size in asdict(memory).items()}
    return "\n".join(f"{name:<14}{value}" for name, value in rows.items())


def _as_json(report: "TrainReport") -> str:
    fields = {**asdict(report), "out": str(report.out), "draft": report.draft and str(report.draft)}
    return json.dumps(fields)


def _as_table(report: "TrainReport", plan: "TrainingPlan") -> str:
    from eagle3.extraction.options import options_of_target
    from eagle3.training.train import summary

    rows = {
        "steps": f"{report.steps:,}",
        "tokens/s": f"{report.tokens_per_s:,.0f}, {report.waited:.1%} of the time waiting for data",
        "metrics": str(report.out / "metrics.jsonl"),
        "draft": str(report.draft or "not exported"),
    }
    table = "\n".join(f"{name:<10}{value}" for name, value in rows.items())
    made = f"{table}\n\n{summary(report)}"
    if report.draft is None:
        return made
    options = ["--draft", str(report.draft)]
    options += options_of_target(plan.training.store.manifest.command)
    return (
        f"{made}\nnext: what a running target accepts of it\n"
        f"  {next_command('//eagle3:evaluate', *options)}"
    )


if __name__ == "__main__":
    run(train)
