"""Python: ruff's rules, its format, and types."""

from tests.lint import workspace

# What sets up the workspace runs on the machine's own python3, and Debian 11 has 3.9.
_SET_UP = (
    *sorted((workspace.root() / "tools/bootstrap").glob("*.py")),
    workspace.root() / "tools/oci/fetch_debs.py",
    workspace.root() / "tools/python/wheel.py",
    workspace.root() / "tools/remote/programs.py",
)


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


def test_the_set_up_has_the_syntax_of_python_3_9() -> None:
    """FA102: an annotation that an old Python would evaluate, and cannot."""
    options = ("--no-cache", "--isolated", "--target-version=py39", "--select=E9,FA102")
    result = workspace.run_tool("ruff", "check", *options, *_SET_UP)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_set_up_needs_no_newer_library() -> None:
    """What came with Python 3.10 passes: the stubs of pyrefly begin there."""
    options = ("--python-version=3.9", "--skip-interpreter-query")
    result = workspace.run_tool("pyrefly", "check", *options, *_SET_UP)
    assert result.returncode == 0, result.stdout + result.stderr
