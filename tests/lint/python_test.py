"""Python: ruff's rules, its format, and types."""

from tests.lint import workspace


def test_rules() -> None:
    result = workspace.run_tool("ruff", "check", "--no-cache", ".")
    assert result.returncode == 0, result.stdout + result.stderr


def test_format() -> None:
    result = workspace.run_tool("ruff", "format", "--no-cache", "--diff", ".")
    assert result.returncode == 0, result.stdout + result.stderr


def test_types() -> None:
    places = ("stack_cpu/site-packages", "buildgrid/site-packages", "zstandard/wheel")
    sites = [workspace.located(place) for place in places]
    result = workspace.run_tool(
        "pyrefly",
        "check",
        *(f"--site-package-path={site}" for site in sites),
        "--skip-interpreter-query",
    )
    assert result.returncode == 0, result.stdout + result.stderr
