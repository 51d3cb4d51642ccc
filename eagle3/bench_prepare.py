"""Measures how fast conversations are prepared, beside the tokenizer's own speed.

Exit codes: 0 measured, 1 unexpected failure, 2 wrong option or model, 130 interrupted, 143 ended by
SIGTERM.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eagle3.command import Command, data_path, model_folder, run, stdout_for_result_only

if TYPE_CHECKING:
    from eagle3.benchmark.preparation.measure import Speed

_HELP = """Measure how fast conversations are prepared, beside the tokenizer's own speed.

Synthetic conversations of three shapes are prepared in as many processes as there are cores, and
their rendered text is encoded by the tokenizer alone, in turn. Both are told in CPU time a row, all
processes of a preparation together; the share is what is left of the tokenizer's own speed.

\b
Exit codes:
  0    measured
  1    unexpected failure
  2    an option or the model is wrong
  130  interrupted
  143  ended by SIGTERM
"""


@click.command(
    cls=Command, name="bench_prepare", help=_HELP, context_settings={"show_default": True}
)
@click.option(
    "--model",
    default="smollm2",
    metavar="NAME|FOLDER",
    help="A shipped model's name (smollm2) or the folder of a checkpoint.",
)
@click.option(
    "--processes", type=click.IntRange(min=1), help="Processes at once.  [default: one a core]"
)
@click.option("--repeats", type=click.IntRange(min=1), default=5, help="The best of so many.")
@click.option(
    "--scale", type=click.FloatRange(min=0, min_open=True), default=1.0, help="Of the usual rows."
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON for each shape.")
@click.option("-v", "--verbose", is_flag=True, help="Show stack traces.")
def bench_prepare(
    model: str, processes: int | None, repeats: int, scale: float, as_json: bool, verbose: bool
) -> None:
    folder = model_folder(model)
    count = processes or os.process_cpu_count() or 1
    with stdout_for_result_only(), tempfile.TemporaryDirectory(prefix="eagle3-bench-") as scratch:
        # Imported only now: --help must not wait for Arrow.
        from eagle3.benchmark.preparation.measure import measure
        from eagle3.benchmark.preparation.rows import SHAPES, words_of, write_rows
        from eagle3.preparation.request import PreparationRequest

        words = words_of(data_path("smoke"))
        speeds = {}
        for shape in SHAPES:
            data = write_rows(Path(scratch, "rows.jsonl"), shape, words, scale)
            request = PreparationRequest(data, folder, Path(scratch, "prepared"))
            speeds[shape.name] = measure(request, count, repeats)
    for name, speed in speeds.items():
        click.echo(json.dumps(_fields(name, speed)) if as_json else _line(name, speed))


def _fields(name: str, speed: "Speed") -> dict[str, object]:
    return {
        "shape": name,
        "rows": speed.rows,
        "tokens": speed.tokens,
        "prepare_us_a_row": round(1e6 * speed.prepare_s / speed.rows, 1),
        "tokenizer_us_a_row": round(1e6 * speed.tokenizer_s / speed.rows, 1),
        "share": round(speed.share, 3),
    }


def _line(name: str, speed: "Speed") -> str:
    return (
        f"{name}: {speed.rows:,} rows of {speed.tokens / speed.rows:,.0f} tokens, "
        f"{1e6 * speed.prepare_s / speed.rows:,.0f} us a row; the tokenizer alone "
        f"{1e6 * speed.tokenizer_s / speed.rows:,.0f} us: {speed.share:.2f} of its speed"
    )


if __name__ == "__main__":
    run(bench_prepare)
