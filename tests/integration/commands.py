"""The commands as processes, as a user's shell starts them."""

import os
import subprocess
import sys
from collections.abc import Sequence


def start_command(
    name: str, arguments: Sequence[str], stderr: int | None = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Starts `name` with this process's import path. `stderr` None: what it says goes to ours."""
    script = f"from eagle3.command import run; from eagle3.{name} import {name}; run({name})"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1"}
    return subprocess.Popen(
        [sys.executable, "-s", "-c", script, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        text=True,
        env=environment,
    )
