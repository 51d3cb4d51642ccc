"""Extracts hidden states from a running target model into a folder of samples.

Exit codes: 0 done, 1 unexpected failure, 2 wrong option, model or data, 3 the target failed,
4 the output folder cannot be used, 130 interrupted, 143 ended by SIGTERM.
"""

import json
from typing import TYPE_CHECKING, Any

import click

from eagle3.command import Command, next_command, run, stdout_for_result_only, user_path
from eagle3.extraction.options import extraction_options, make_request
from eagle3.progress import Progress

if TYPE_CHECKING:
    from eagle3.extraction.extract import ExtractionReport

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
  143  ended by SIGTERM (the same)
"""


@click.command(cls=Command, help=_HELP, context_settings={"show_default": True})
@extraction_options
@click.option(
    "--preflight/--no-preflight",
    default=True,
    help="Stop before the load where it would fail; see //eagle3:preflight.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, not a table.")
@click.option("-v", "--verbose", is_flag=True, help="Show the target's log and stack traces.")
def extract(as_json: bool, **options: Any) -> None:
    progress = Progress()
    progress.say(f"extract: states of {options['model']} into {user_path(options['out'])}")
    request = make_request("extract", **options)
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
        "shape": f"[T, {report.shape[1]}, {report.shape[2]}] {report.dtype} a sample",
        "bytes": f"{report.size:,}",
        "set aside": f"{report.quarantined:,} (quarantine.jsonl)" if report.quarantined else "0",
        "where": str(report.out),
    }
    table = "\n".join(f"{name:<10}{value}" for name, value in rows.items())
    out = str(report.out)
    return (
        f"{table}\n\nnext: look at it (--verify checks every byte), and train a draft on it\n"
        f"  {next_command('//eagle3:inspect', out)}\n"
        f"  {next_command('//eagle3:train', '--store', out)}"
    )


if __name__ == "__main__":
    run(extract)
