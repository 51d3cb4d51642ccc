"""Starlark: format."""

import difflib
from pathlib import Path

import pytest

from tests.lint import starlark, workspace


@pytest.mark.parametrize(
    "file",
    workspace.files(*starlark.SUFFIXES),
    ids=lambda file: str(file.relative_to(workspace.root())),
)
def test_format(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    wanted = starlark.formatted(file)
    difference = "".join(difflib.unified_diff(text.splitlines(True), wanted.splitlines(True)))
    assert text == wanted, f"tools/bazel run //tests/lint:format mends it:\n{difference}"


def test_keywords_have_spaces_and_strings_are_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "BUILD.bazel"
    file.write_text('x=1\nrule(name="a=b", deps = [ f(y=2), ],)\n')
    assert starlark.formatted(file) == (
        'x = 1\nrule(\n    name = "a=b",\n    deps = [\n        f(y = 2),\n    ],\n)\n'
    )
