"""The command extract as a process, as a user's shell starts it."""

import os
import subprocess
import sys
from collections.abc import Sequence

_SCRIPT = "from eagle3.command import run; from eagle3.extract import extract; run(extract)"


def start_extraction(
    arguments: Sequence[str], stderr: int | None = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Starts it with this process's import path. `stderr` None: what it says goes to ours."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1"}
    return subprocess.Popen(
        [sys.executable, "-s", "-c", _SCRIPT, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        text=True,
        env=environment,
    )
