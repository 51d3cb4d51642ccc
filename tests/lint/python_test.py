"""Python and Starlark: ruff's rules and format, and types."""

from tests.lint import workspace


def test_rules() -> None:
    result = workspace.run_tool("ruff", "check", "--no-cache", ".")
    assert result.returncode == 0, result.stdout + result.stderr


def test_format_of_python() -> None:
    result = workspace.run_tool("ruff", "format", "--no-cache", "--diff", ".")
    assert result.returncode == 0, result.stdout + result.stderr


def test_format_of_starlark() -> None:
    starlark = workspace.files(".bzl", ".bazel", ".BUILD", "WORKSPACE")
    assert starlark
    result = workspace.run_tool(
        "ruff",
        "format",
        "--no-cache",
        "--diff",
        "--isolated",
        "--line-length=120",
        "--extension=bzl:python,bazel:python,BUILD:python",
        *starlark,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_types() -> None:
    site = workspace.located("stack_cpu/site-packages")
    result = workspace.run_tool("pyrefly", "check", f"--site-package-path={site}")
    assert result.returncode == 0, result.stdout + result.stderr
