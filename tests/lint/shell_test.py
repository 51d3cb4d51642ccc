"""Shell: shellcheck on every script, found by its first line."""

from pathlib import Path

from tests.lint import workspace


def _is_shell(file: Path) -> bool:
    first = file.read_bytes()[:64].splitlines()[:1]
    return bool(first) and first[0].startswith(b"#!") and first[0].rstrip().endswith(b"sh")


def test_shell_scripts() -> None:
    scripts = [file for file in workspace.files() if _is_shell(file)]
    assert scripts
    result = workspace.run_tool("shellcheck", *scripts)
    assert result.returncode == 0, result.stdout + result.stderr
