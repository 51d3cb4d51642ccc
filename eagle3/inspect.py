"""Shows and checks what is in a store of hidden states.

Exit codes: 0 as it should be, 1 unexpected failure, 2 wrong option, 4 there is no store, it is
damaged, or two stores differ, 130 interrupted, 143 ended by SIGTERM.
"""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eagle3.command import Command, run, stdout_for_result_only, user_path
from eagle3.errors import StoreError
from eagle3.progress import BytesDone, Progress

if TYPE_CHECKING:
    from eagle3.inspection.report import InspectionReport

_HELP = """Show and check what is in a store of hidden states.

Without options: what the store holds and where it comes from, the statistics of each capture
point, and the text of the first sample, its supervised tokens in colour and marked with +.

\b
Exit codes:
  0    as it should be
  1    unexpected failure
  2    an option is wrong
  4    there is no store, it is damaged, or it differs from the one to compare with
  130  interrupted
  143  ended by SIGTERM
"""


@click.command(cls=Command, help=_HELP, context_settings={"show_default": True})
@click.argument("folder", default="./eagle3-out")
@click.option("--verify", is_flag=True, help="Read all states and check every checksum.")
@click.option("--find", metavar="ID", help="Show this sample; the beginning of its id will do.")
@click.option("--compare", metavar="FOLDER", help="Say how another store differs.")
@click.option(
    "--merge", is_flag=True, help="Join the parts that --shard runs wrote into one store."
)
@click.option("--pack", metavar="FOLDER", help="Write the store there, packed for a journey.")
@click.option("--unpack", metavar="FOLDER", help="Make a store there of this packed one.")
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    default=16384,
    help="Tokens to take statistics of, from samples all over the store.",
)
@click.option("--html", "page", metavar="FILE", help="Write a page with plots, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, not tables.")
@click.option("-v", "--verbose", is_flag=True, help="Show stack traces.")
def inspect(
    folder: str,
    compare: str | None,
    pack: str | None,
    unpack: str | None,
    page: str | None,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> None:
    if pack or unpack:
        if pack and unpack:
            raise click.UsageError("give --pack or --unpack, not both")
        _convert(user_path(folder), pack, unpack, as_json=as_json)
        return
    with stdout_for_result_only():
        # Imported only now: --help must not wait seconds for torch.
        from eagle3.inspection.report import InspectionRequest, inspect_store

        request = InspectionRequest(
            folder=user_path(folder),
            compare=user_path(compare) if compare else None,
            **options,
        )
        report = inspect_store(request, Progress())
    if page:
        _write_page(report, user_path(page))
    if as_json:
        click.echo(_as_json(report))
    else:
        _print_tables(report, whole_sample=request.find is not None)
    _fail_where_needed(report)


def _convert(folder: Path, pack: str | None, unpack: str | None, *, as_json: bool) -> None:
    with stdout_for_result_only():
        from eagle3.store.pack import pack_store, unpack_store

        target, began = user_path(pack or unpack or ""), time.monotonic()
        told = BytesDone(Progress(), "packing" if pack else "unpacking")
        (pack_store if pack else unpack_store)(folder, target, told)
    before, after = (
        sum(path.stat().st_size for path in where.iterdir() if path.is_file())
        for where in (folder, target)
    )
    seconds = time.monotonic() - began
    if as_json:
        fields = {"folder": str(target), "bytes": after, "bytes_before": before}
        click.echo(json.dumps(fields | {"seconds": round(seconds, 3)}))
    else:
        click.echo(
            f"{target}: {after:,} bytes, {after / before:.2f} of {folder}, at "
            f"{before / seconds / 1e6:,.0f} MB/s"
        )


def _as_json(report: "InspectionReport") -> str:
    entry, sample = report.entry, report.sample
    fields = {
        "folder": str(report.folder),
        "samples": report.samples,
        "dataset_samples": report.manifest.dataset.samples,
        "complete": report.is_complete,
        "tokens": report.tokens,
        "shards": report.shards,
        "bytes": report.bytes,
        "parts": report.parts,
        "capture_points": report.manifest.capture_points,
        "hidden_size": report.manifest.hidden_size,
        "stack": report.manifest.stack.name,
        "target": report.manifest.target.path,
        "held_out": report.held_out,
        "held_out_tokens": report.held_out_tokens,
        "quarantined": report.quarantined,
        "used": report.used,
        "points": [asdict(point) for point in report.points],
        "sample": entry and {**asdict(entry), "supervised": sample and sum(sample.loss_mask)},
        "verified": report.verification and asdict(report.verification),
        "compared": report.comparison and asdict(report.comparison),
    }
    return json.dumps(fields)


def _write_page(report: "InspectionReport", path: Path) -> None:
    from eagle3.inspection.page import render_page
    from eagle3.inspection.preview import load_decoder, make_spans
    from eagle3.inspection.table import PREVIEW_TOKENS
    from eagle3.store.durable import write_file

    spans = []
    with stdout_for_result_only():
        if report.sample:
            decode = load_decoder(Path(report.manifest.target.path))
            spans = make_spans(report.sample, decode, PREVIEW_TOKENS)
    try:
        write_file(path, render_page(report, spans).encode())
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}; give another --html") from error


def _print_tables(report: "InspectionReport", *, whole_sample: bool) -> None:
    from rich.console import Console

    from eagle3.inspection.preview import load_decoder
    from eagle3.inspection.table import render

    with stdout_for_result_only():
        decode = load_decoder(Path(report.manifest.target.path))
    console = Console(file=sys.stdout, highlight=False, markup=False, soft_wrap=True)
    console.print(render(report, decode, whole_sample=whole_sample))


def _fail_where_needed(report: "InspectionReport") -> None:
    if report.verification and report.verification.damages:
        damages = report.verification.damages
        samples = sum(map(len, damages.values()))
        first = next(iter(damages))
        raise StoreError(f"{samples:,} of {report.samples:,} samples are damaged: {first}")
    if report.comparison and not report.comparison.is_equal:
        raise StoreError("the two stores do not hold the same; stdout says how")


if __name__ == "__main__":
    run(inspect)
