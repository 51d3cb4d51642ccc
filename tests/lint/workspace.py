"""The tracked files of the workspace, for tests that must see all of them.

A target's declared inputs are only what somebody listed; a rule that holds for every file
has to look at the checkout itself. These tests therefore run unsandboxed and are never cached.
"""

import os
import subprocess
from pathlib import Path

from runfiles import Runfiles

# What tools, and commands without arguments, leave in a checkout; .ci is the one dotted folder that
# is ours.
_NOT_OURS = {"__pycache__", "eagle3-data", "eagle3-draft", "eagle3-out", "eagle3-peer"}


def root() -> Path:
    """Returns the checkout: where the runfiles' link to its WORKSPACE file points."""
    return Path(located("eagle3_training/WORKSPACE")).resolve().parent


def located(path: str) -> str:
    """Returns a runfile's path; raises FileNotFoundError if the target does not declare it."""
    runfiles = Runfiles.Create()
    found = runfiles.Rlocation(path) if runfiles else None
    if not found or not os.path.exists(found):
        raise FileNotFoundError(path)
    return found


def files(*suffixes: str) -> list[Path]:
    """Returns the checkout's files that end in one of `suffixes` (default: all), sorted.

    Walks instead of asking git, which a machine that only runs the tests need not have.
    """
    found = []
    for folder, folders, names in os.walk(root()):
        folders[:] = [name for name in folders if name == ".ci" or not _is_left_over(name)]
        found += [Path(folder, name) for name in names if name.endswith(suffixes or ("",))]
    return sorted(file for file in found if file.is_file() and not file.is_symlink())


def _is_left_over(folder: str) -> bool:
    return folder in _NOT_OURS or folder.startswith((".", "bazel-"))


def run_tool(
    name: str, *arguments: str | Path, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a linter of third_party/lint in the checkout."""
    program = located(f"lint_tools/site-packages/bin/{name}")
    return subprocess.run(
        [program, *map(str, arguments)],
        cwd=root(),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
