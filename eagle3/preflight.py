"""Tells what would stop an extraction, or spoil it, without loading the target.

Exit codes: 0 nothing will, 1 unexpected failure, 2 something will, or an option is wrong, 130
interrupted, 143 ended by SIGTERM.
"""

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from eagle3.command import Command, run, stdout_for_result_only
from eagle3.errors import InputError
from eagle3.extraction.options import extraction_options, make_request
from eagle3.progress import Progress

if TYPE_CHECKING:
    from eagle3.checks.finding import Finding

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
_HELP = """Check in seconds what a load of the target would find out in minutes.

Takes the options of extract: put this command in its place, and look. Each line is a verdict, what
was found, and what to do about it. Nothing is loaded and nothing stays on the disk.

\b
Exit codes:
  0    nothing that would fail was found
  1    unexpected failure
  2    something would fail, or an option is wrong
  130  interrupted
  143  ended by SIGTERM
"""


@click.command(cls=Command, help=_HELP, context_settings={"show_default": True})
@extraction_options
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, not lines of text.")
@click.option("-v", "--verbose", is_flag=True, help="Show stack traces.")
def preflight(as_json: bool, **options: Any) -> None:
    request = make_request("preflight", **options)
    stdout = sys.stdout
    findings: list[Finding] = []
    # All of the data is read, which may take minutes.
    with Progress().waiting("preflight"), stdout_for_result_only():
        # Imported only now: --help must not wait for what these import.
        from eagle3.checks.machine import read_machine
        from eagle3.checks.run import run_checks
        from eagle3.checks.situation import Situation

        for finding in run_checks(Situation(request, read_machine())):
            findings.append(finding)
            if not as_json:
                verdict = click.style(f"{finding.verdict:<5}", fg=_COLOURS[finding.verdict])
                click.echo(f"{verdict} {finding}", file=stdout)
    failed = sum(finding.verdict == "fail" for finding in findings)
    if as_json:
        click.echo(json.dumps({"ok": not failed, "findings": [asdict(f) for f in findings]}))
    if failed:
        raise InputError(f"{failed} of {len(findings)} findings would stop the target")


if __name__ == "__main__":
    run(preflight)
