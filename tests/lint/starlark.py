"""The format of BUILD and .bzl files: ruff's, with the spaces around `=` that Starlark has.

Starlark's syntax is a part of Python's. Its usual style differs from Python's in one point
that matters: `name = "value"` in calls and parameters, where Python has `name="value"`.
"""

import io
import tokenize
from pathlib import Path

from tests.lint import workspace

SUFFIXES = (".bzl", ".bazel", ".BUILD", "WORKSPACE")
_BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


def formatted(file: Path) -> str:
    """Returns the file's text as it should be; raises ValueError where it cannot be parsed."""
    result = workspace.run_tool(
        "ruff",
        "format",
        "--no-cache",
        "--isolated",
        "--line-length=100",
        "--stdin-filename=starlark.py",
        "-",
        stdin=file.read_text(encoding="utf-8"),
    )
    if result.returncode:
        raise ValueError(f"{file}: {result.stderr}")
    return _space_keywords(result.stdout)


def _space_keywords(text: str) -> str:
    lines = text.splitlines(keepends=True)
    places = []
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.OP:
            depth += _BRACKETS.get(token.string, 0)
            if token.string == "=" and depth:
                places.append(token.start)
    for row, column in reversed(places):
        line = lines[row - 1]
        lines[row - 1] = f"{line[:column].rstrip(' ')} = {line[column + 1 :].lstrip(' ')}"
    return "".join(lines)
