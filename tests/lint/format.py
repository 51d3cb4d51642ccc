"""Formats the checkout: `tools/bazel run //tests/lint:format`."""

import sys

from tests.lint import starlark, workspace


def main() -> int:
    """Returns ruff's exit code for the Python files."""
    result = workspace.run_tool("ruff", "format", "--no-cache", ".")
    print(result.stdout + result.stderr, end="", file=sys.stderr)
    for file in workspace.files(*starlark.SUFFIXES):
        text = starlark.formatted(file)
        if text != file.read_text(encoding="utf-8"):
            file.write_text(text, encoding="utf-8")
            print(f"formatted {file.relative_to(workspace.root())}", file=sys.stderr)
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
