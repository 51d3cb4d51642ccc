"""Prepares conversations for extraction: token ids and loss masks in a folder.

Exit codes: 0 done, 1 unexpected failure, 2 wrong option, model or data, 4 the output folder cannot
be used, 130 interrupted.
"""

import datetime
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eagle3.command import Command, model_folder, run, stdout_for_result_only, user_path
from eagle3.errors import InputError
from eagle3.progress import Progress

if TYPE_CHECKING:
    from eagle3.chat.chat_template import ChatTemplate
    from eagle3.preparation.prepare import PreparationReport
    from eagle3.preparation.request import PreparationRequest

_FORMS = ("messages", "sharegpt", "alpaca", "prompt", "tokens")
# Below this much data a second process takes longer to start than the work.
_BYTES_FOR_MORE_WORKERS = 4_000_000
_REASONS_SHOWN = 5
_HELP = """Prepare conversations for extraction.

Reads JSONL (plain, .gz, .zst) or parquet, renders every conversation with the target's own chat
template, and writes token ids with a loss mask that covers what the target would have generated.
Nothing is written unless all of it is.

\b
Exit codes:
  0    done
  1    unexpected failure
  2    an option, the model or the data is wrong
  4    the output folder is there already, or cannot be written
  130  interrupted (nothing stays)
"""


@click.command(cls=Command, help=_HELP, context_settings={"show_default": True})
@click.option("--data", metavar="FILE|FOLDER", help="JSONL or parquet; of a folder all such files.")
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
    help="Share of conversations held out.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of that choice.")
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
    show_default="one a core; one for small data",
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
    verbose: bool,
    **options: Any,
) -> None:
    progress = Progress()
    folder = model_folder(model)
    day = date.date() if date else datetime.date.today()
    if lint:
        _lint(folder, day, options["trust_remote_code"])
        return
    if data is None:
        raise click.UsageError("--data is needed: a JSONL or parquet file, or a folder of such")
    progress.say(f"prepare: {data} for {model} into {user_path(out)}")
    with stdout_for_result_only():
        # Imported only now: the first line must not wait for the tokenizer's libraries.
        from eagle3.preparation.prepare import prepare as prepare_data
        from eagle3.preparation.request import PreparationRequest

        path = user_path(data)
        request = PreparationRequest(
            data=path,
            model=folder,
            out=user_path(out),
            date=day,
            workers=workers or _usual_workers(path),
            **options,
        )
        report = prepare_data(request, progress)
    if report.shown:
        _show(request, report, to_stderr=as_json)
    click.echo(_as_json(report, draft_vocab) if as_json else _as_table(report, draft_vocab))


def _usual_workers(data: Path) -> int:
    files = [data] if data.is_file() else [path for path in data.rglob("*") if path.is_file()]
    small = sum(path.stat().st_size for path in files) < _BYTES_FOR_MORE_WORKERS
    return 1 if small else len(os.sched_getaffinity(0))


def _lint(model: Path, date: datetime.date, trust_remote_code: bool) -> None:
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
    texts = ((supervised, template.tokenizer.decode(tokens)) for supervised, tokens in runs)
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
            "draft_vocab": draft_vocab,
            "coverage": round(report.frequencies.coverage(draft_vocab), 6),
            "sha256": report.dataset_sha256,
            "out": str(report.out),
        }
    )


def _as_table(report: "PreparationReport", draft_vocab: int) -> str:
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
    return (
        f"{table}{noted}\n\nnext: the states of the target\n"
        f"  tools/bazel run //eagle3:extract -- --data {report.out} --out FOLDER"
    )


if __name__ == "__main__":
    # transformers opens a tokenizer three times faster without torch, which prepares nothing.
    os.environ.update(USE_TORCH="0", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")
    run(prepare)
