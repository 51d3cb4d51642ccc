"""Prepares conversations for extraction: token ids and loss masks in a folder.

Exit codes: 0 done, 1 unexpected failure, 2 wrong option, model or data, 3 the target failed, 4 the
output folder cannot be used, 130 interrupted, 143 ended by SIGTERM.
"""

import datetime
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eagle3.command import (
    Command,
    data_path,
    model_folder,
    next_command,
    run,
    stdout_for_result_only,
    user_path,
)
from eagle3.errors import InputError
from eagle3.progress import Progress

if TYPE_CHECKING:
    from eagle3.chat.chat_template import ChatTemplate
    from eagle3.preparation.prepare import PreparationReport
    from eagle3.preparation.request import PreparationRequest
    from eagle3.preparation.statistics import Statistics

_FORMS = ("messages", "sharegpt", "alpaca", "prompt", "tokens")
# With less data a process takes longer to start than its work.
_BYTES_PER_WORKER = 4_000_000
_REASONS_SHOWN = 5
_SAMPLING = ("temperature", "top_p", "stop")
# Options of a target that generates; the others are those of every preparation.
_GENERATION = (
    *_SAMPLING,
    "regenerate",
    "conversations",
    "tokens",
    "turns",
    "max_tokens",
    "on_degenerate",
    "tensor_parallel",
    "gpu_memory_utilization",
    "preflight",
    "verbose",
)
_HELP = """Prepare conversations for extraction.

Reads JSONL (plain, .gz, .zst) or parquet, renders every conversation with the target's own chat
template, and writes token ids with a loss mask that covers what the target would have generated.
With --regenerate the target answers itself, with --self-instruct it asks, too. Nothing is written
unless all of it is.

\b
Exit codes:
  0    done
  1    unexpected failure
  2    an option, the model or the data is wrong
  3    the target failed while it wrote (the same command goes on from there)
  4    the output folder is there already, or cannot be written
  130  interrupted (of what the target wrote all is kept, else nothing)
  143  ended by SIGTERM (the same)
"""


@click.command(cls=Command, help=_HELP, context_settings={"show_default": True})
@click.option(
    "--data",
    metavar="NAME|FILE|FOLDER",
    help="Shipped data by name (smoke, heldout), or JSONL or parquet; of a folder all such files.",
)
@click.option(
    "--model",
    default="smollm2",
    metavar="NAME|FOLDER",
    help="Target: a shipped model's name (smollm2) or the folder of a checkpoint.",
)
@click.option("--out", default="./eagle3-data", metavar="FOLDER", help="Where the dataset goes.")
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMS),
    show_default="told by the columns of each row",
    help="What the rows are.",
)
@click.option(
    "--max-model-len",
    type=click.IntRange(min=1),
    show_default="2048, or less where the target takes less",
    help="Longest sample in tokens.",
)
@click.option(
    "--regenerate", is_flag=True, help="Let the target answer the questions of the data itself."
)
@click.option(
    "--self-instruct",
    "conversations",
    type=click.IntRange(min=1),
    metavar="N",
    help="Let the target write N conversations, questions too; needs no --data.",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop --self-instruct earlier, when the samples hold N tokens.",
)
@click.option(
    "--turns",
    type=click.IntRange(min=1),
    default=1,
    help="Questions and answers of a conversation of --self-instruct.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(min=0),
    show_default="the target's generation_config.json, else 1",
    help="Sampling of answers; 0 takes the most probable token.",
)
@click.option(
    "--top-p",
    type=click.FloatRange(min=0, max=1, min_open=True),
    show_default="the target's generation_config.json, else 1",
    help="Sampling of answers among the most probable tokens.",
)
@click.option(
    "--max-tokens", type=click.IntRange(min=1), default=1024, help="Longest generated answer."
)
@click.option(
    "--stop",
    multiple=True,
    metavar="TOKEN",
    help="One more token that ends an answer; may be given several times.",
)
@click.option(
    "--on-degenerate",
    type=click.Choice(["drop", "keep"]),
    default="drop",
    help="Generated answers that are empty, loop, or reach --max-tokens.",
)
@click.option(
    "--tp",
    "tensor_parallel",
    type=click.IntRange(min=1),
    default=1,
    help="Tensor-parallel ranks of the target that generates.",
)
@click.option(
    "--gpu-memory-utilization",
    type=click.FloatRange(min=0, max=1, min_open=True),
    default=0.8,
    help="Share of each GPU's memory for it (no effect on a CPU).",
)
@click.option(
    "--preflight/--no-preflight",
    default=True,
    help="Stop before a target that generates is loaded, where that would fail.",
)
@click.option(
    "--long",
    type=click.Choice(["drop", "split", "truncate"]),
    default="drop",
    help="What becomes of longer ones; split cuts at the end of a turn.",
)
@click.option(
    "--history",
    type=click.Choice(["split", "last", "refuse"]),
    default="split",
    help="Where the template rewrites earlier turns: one sample a turn, the last turn, or none.",
)
@click.option(
    "--reasoning",
    type=click.Choice(["keep", "drop"]),
    default="keep",
    help="Whether the reasoning in the data is part of the answers.",
)
@click.option(
    "--validation-share",
    type=click.FloatRange(min=0, max=1, max_open=True),
    default=0.0,
    help="Share of conversations held out: extract marks them, and train leaves them alone.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    help="Seed of that choice, and of what is generated.",
)
@click.option(
    "--draft-vocab",
    type=click.IntRange(min=1),
    default=32000,
    help="Size of a draft vocabulary of which to tell the coverage.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), show_default="all", help="Read only so many rows."
)
@click.option(
    "--date",
    type=click.DateTime(["%Y-%m-%d"]),
    show_default="today",
    help="What a template that asks takes for today.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    show_default="one a core, but no more than one for 4 MB of data",
    help="Processes that tokenize.",
)
@click.option("--show", type=click.IntRange(min=0), default=0, help="Print so many samples.")
@click.option("--html", is_flag=True, help="Write lengths.html, a histogram, into the folder.")
@click.option("--lint", is_flag=True, help="Only check the tokenizer and the template.")
@click.option(
    "--trust-remote-code", is_flag=True, help="Run the code in the model's folder (never fetched)."
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, not a table.")
@click.option("-v", "--verbose", is_flag=True, help="Show stack traces.")
def prepare(
    data: str | None,
    model: str,
    out: str,
    date: datetime.datetime | None,
    workers: int | None,
    draft_vocab: int,
    lint: bool,
    as_json: bool,
    **options: Any,
) -> None:
    progress = Progress()
    folder = model_folder(model)
    day = date.date() if date else datetime.date.today()
    if lint:
        _lint(folder, day, options["trust_remote_code"])
        return
    generation = {name: options.pop(name) for name in _GENERATION}
    path = _data(data, generation)
    progress.say(f"prepare: {data or 'conversations'} for {model} into {user_path(out)}")
    with stdout_for_result_only():
        # Imported only now: the first line must not wait for the tokenizer's libraries.
        from eagle3.preparation.request import PreparationRequest

        request = PreparationRequest(
            data=path,
            model=folder,
            out=user_path(out),
            date=day,
            workers=workers or _usual_workers(path),
            **options,
        )
        report = _run(request, generation, progress)
    if report.shown:
        try:
            _show(request, report, to_stderr=as_json)
        except InputError as error:
            # Ready token ids need no tokenizer, and the dataset is there by now.
            progress.say(f"not shown: {error}")
    if as_json:
        click.echo(_as_json(report, draft_vocab))
    else:
        alike = _as_extract_needs(request, generation["tensor_parallel"])
        click.echo(_as_table(report, draft_vocab, ("--model", model, *alike)))


def _as_extract_needs(request: "PreparationRequest", tensor_parallel: int) -> list[str]:
    """The options without which extract would refuse this dataset or this target."""
    options = []
    if request.max_model_len is not None:
        options += ["--max-model-len", str(request.max_model_len)]
    if tensor_parallel > 1:
        options += ["--tp", str(tensor_parallel)]
    if request.trust_remote_code:
        options.append("--trust-remote-code")
    return options


def _data(data: str | None, generation: dict[str, Any]) -> Path | None:
    invents = generation["conversations"] is not None
    if invents and (data is not None or generation["regenerate"]):
        raise click.UsageError("--self-instruct writes its own questions; drop the other option")
    if not invents:
        if generation["tokens"] is not None:
            raise click.UsageError("--tokens says when to stop --self-instruct; give that, too")
        if data is None:
            raise click.UsageError("--data is needed: a JSONL or parquet file, or a folder of such")
    return None if data is None else data_path(data)


def _run(
    request: "PreparationRequest", generation: dict[str, Any], progress: Progress
) -> "PreparationReport":
    if not generation.pop("regenerate") and generation["conversations"] is None:
        _leave_torch_out()
        from eagle3.preparation.prepare import prepare as prepare_data

        return prepare_data(request, progress)
    from eagle3.generation.generate import generate
    from eagle3.generation.request import GenerationRequest
    from eagle3.generation.sampling import SamplingOptions

    sampling = SamplingOptions(*(generation.pop(name) for name in _SAMPLING))
    return generate(GenerationRequest(request, sampling, **generation), progress)


def _leave_torch_out() -> None:
    """transformers opens a tokenizer three times faster without torch, which prepares nothing."""
    os.environ.update(USE_TORCH="0", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")


def _usual_workers(data: Path | None) -> int:
    if data is None:
        return 1
    files = [data] if data.is_file() else [path for path in data.rglob("*") if path.is_file()]
    useful = sum(path.stat().st_size for path in files) // _BYTES_PER_WORKER
    return max(1, min(useful, len(os.sched_getaffinity(0))))


def _lint(model: Path, date: datetime.date, trust_remote_code: bool) -> None:
    _leave_torch_out()
    with stdout_for_result_only():
        from eagle3.chat.chat_template import load_chat_template
        from eagle3.chat.lint import lint_template

        template = load_chat_template(model, trust_remote_code=trust_remote_code, date=date)
        findings = list(lint_template(template))
    for finding in findings:
        click.echo(f"{finding.kind:<7}{finding.text}")
    faults = sum(finding.kind == "fault" for finding in findings)
    if faults:
        raise InputError(f"the template of {model} has faults: {faults}; see above")


def _show(request: "PreparationRequest", report: "PreparationReport", *, to_stderr: bool) -> None:
    from eagle3.chat.chat_template import load_chat_template

    template = load_chat_template(
        request.model, trust_remote_code=request.trust_remote_code, date=request.date
    )
    for sample in report.shown:
        click.echo(f"--- {sample['id']}, {len(sample['input_ids']):,} tokens", err=to_stderr)
        click.echo(_marked(sample, template), err=to_stderr)


def _marked(sample: dict[str, Any], template: "ChatTemplate") -> str:
    """The text of a sample, supervised parts in green and between «» (a file has no colours)."""
    runs: list[tuple[int, list[int]]] = []
    for token, supervised in zip(sample["input_ids"], sample["loss_mask"], strict=True):
        if not runs or runs[-1][0] != supervised:
            runs.append((supervised, []))
        runs[-1][1].append(token)
    texts = ((supervised, template.decode(tokens)) for supervised, tokens in runs)
    return "".join(
        click.style(f"«{text}»", fg="green") if supervised else click.style(text, dim=True)
        for supervised, text in texts
    )


def _as_json(report: "PreparationReport", draft_vocab: int) -> str:
    statistics = report.statistics
    return json.dumps(
        {
            "input": statistics.rows_read,
            **{kind: statistics.rows[kind] for kind in ("success", "skipped", "error")},
            "samples": statistics.samples.total(),
            "validation": statistics.samples["validation"],
            "tokens": statistics.tokens,
            "supervised": statistics.supervised,
            "answers": statistics.answers,
            "degenerate": statistics.faults,
            "draft_vocab": draft_vocab,
            "coverage": round(report.frequencies.coverage(draft_vocab), 6),
            "sha256": report.dataset_sha256,
            "out": str(report.out),
        }
    )


def _answers(statistics: "Statistics") -> str:
    faults = ", ".join(f"{count:,} {fault}" for fault, count in statistics.faults.most_common())
    return f"{statistics.answers:,} generated" + (f"; degenerate: {faults}" if faults else "")


def _as_table(report: "PreparationReport", draft_vocab: int, target: Sequence[str]) -> str:
    statistics = report.statistics
    rows = statistics.rows
    kinds = " + ".join(f"{rows[kind]:,} {kind}" for kind in ("success", "skipped", "error"))
    forms = ", ".join(f"{form} {count:,}" for form, count in statistics.forms.most_common())
    supervised = statistics.supervised / statistics.tokens
    train, validation = (statistics.samples[part] for part in ("train", "validation"))
    lines = {
        "rows": f"{kinds} = {statistics.rows_read:,} input",
        "forms": forms,
        "samples": f"{train:,} train, {validation:,} validation",
        "tokens": f"{statistics.tokens:,}, {supervised:.1%} supervised",
        "lengths": " ".join(
            f"{name} {statistics.quantile(share):,}"
            for name, share in (("half", 0.5), ("95%", 0.95), ("longest", 1.0))
        ),
        "several": f"{statistics.in_several:,} rows gave more than one sample"
        if statistics.in_several
        else "",
        "long": f"{statistics.cut:,} cut, {statistics.too_long:,} samples dropped"
        if statistics.cut or statistics.too_long
        else "",
        "answers": _answers(statistics) if statistics.answers else "",
        "repeated": f"{statistics.repeated:,} samples" if statistics.repeated else "",
        "draft": f"{draft_vocab:,} covers {report.frequencies.coverage(draft_vocab):.1%}".replace(
            "%", " %"
        ),
        "sha256": report.dataset_sha256,
        "where": str(report.out),
    }
    table = "\n".join(f"{name:<10}{value}" for name, value in lines.items() if value)
    reasons = "".join(
        f"\n{count:>9,} {kind}: {reason}"
        for (kind, reason), count in statistics.reasons.most_common(_REASONS_SHOWN)
    )
    noted = f"\n\nnot taken (all of them in rejects.jsonl):{reasons}" if reasons else ""
    options = (*target, "--data", str(report.out), "--out", "FOLDER")
    return (
        f"{table}{noted}\n\nnext: the states of the target\n"
        f"  {next_command('//eagle3:extract', *options)}"
    )


if __name__ == "__main__":
    run(prepare)
