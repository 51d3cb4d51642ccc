"""Prints which contracts an installed or unpacked version of a package keeps.

    tools/bazel run //tests/contract:report                  # the built environment
    tools/bazel run //tests/contract:report -- --site PATH   # an unpacked wheel
    python3 -m tests.contract.report --site PATH             # the same, without Bazel

Exit code: 0 all kept, 1 some broken, 2 nothing to compare.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import TextWrapper

from tests.contract.catalogue import CONTRACTS, PACKAGES, installed
from tests.contract.contract import Verdict, check
from tests.contract.source import Source

COLUMNS = (("symbol", 40), ("expected", 36), ("found", 52), ("relied on by", 40))


def table(verdicts: Sequence[Verdict]) -> str:
    """The verdicts as a table of symbol, expected, found and who relies on it."""
    rows = [
        (
            verdict.contract.symbol,
            str(verdict.contract.expected),
            verdict.found if verdict.holds else f"BROKEN: {verdict.found}",
            f"{', '.join(verdict.contract.used_by)}: {verdict.contract.why}",
        )
        for verdict in verdicts
    ]
    rule = "-+-".join("-" * width for _, width in COLUMNS)
    return "\n".join([_row([name for name, _ in COLUMNS]), rule, *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    """One row, its cells folded to the width of their columns."""
    folded = [_fold(cell, width) for cell, (_, width) in zip(cells, COLUMNS, strict=True)]
    lines = range(max(map(len, folded)))
    return "\n".join(
        " | ".join(
            (cell[line] if line < len(cell) else "").ljust(width)
            for cell, (_, width) in zip(folded, COLUMNS, strict=True)
        ).rstrip()
        for line in lines
    )


def _fold(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters; a long name breaks after a dot, not inside a word."""
    wrapper = TextWrapper(width)
    wrapper.wordsep_re = re.compile(r"(\s+)|(?<=[.:/])")
    return wrapper.wrap(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="report", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--site",
        type=Path,
        help="folder that holds the package's folder (default: the built environment)",
    )
    parser.add_argument("--all", action="store_true", help="print the contracts that hold as well")
    options = parser.parse_args(arguments)

    if options.site is None:
        source = installed()
    else:
        # `bazel run` changes the folder; a relative path means the one the user stands in.
        site = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), options.site)
        source = Source.in_site(site, PACKAGES)
    if not source.folders:
        print(f"report: none of {', '.join(PACKAGES)} in {options.site}", file=sys.stderr)
        return 2

    verdicts = [check(c, source) for c in CONTRACTS if c.package in source.folders]
    broken = [verdict for verdict in verdicts if not verdict.holds]
    if shown := verdicts if options.all else broken:
        print(table(shown), end="\n\n")
    for package, folder in source.folders.items():
        count = sum(verdict.contract.package == package for verdict in verdicts)
        failed = sum(verdict.contract.package == package for verdict in broken)
        print(f"{package}: {count - failed} of {count} contracts hold in {folder}")
    for package in PACKAGES:
        if package not in source.folders:
            print(f"{package}: not there, not compared")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
