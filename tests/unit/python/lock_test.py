"""The lock command with a uv that never ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_UV = """#!/bin/sh
for word; do case "$word" in --output-file=*) echo half > "${word#*=}";; esac; done
touch "$STARTED"
exec sleep 600
"""


def test_ctrl_c_is_one_line_and_leaves_the_locks_alone(tmp_path: Path) -> None:
    uv, started = tmp_path / "runfiles/uv/scripts/uv", tmp_path / "started"
    uv.parent.mkdir(parents=True)
    uv.write_text(_UV)
    uv.chmod(0o755)
    folder = tmp_path / "third_party/cpu"
    folder.mkdir(parents=True)
    (folder / "requirements.lock").write_text("torch==2.10.0\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "third_party.lock"],
        env={key: value for key, value in os.environ.items() if key != "RUNFILES_MANIFEST_FILE"}
        | {
            "BUILD_WORKSPACE_DIRECTORY": str(tmp_path),
            "EAGLE3_CACHE": str(tmp_path / "cache"),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "RUNFILES_DIR": str(tmp_path / "runfiles"),
            "STARTED": str(started),
        },
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not started.exists() and process.poll() is None:
        time.sleep(0.02)
    # To both, as a terminal does.
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "[lock] interrupted: each lock is as it was, or done"
    assert "Traceback" not in said
    assert [file.name for file in folder.iterdir()] == ["requirements.lock"]
    assert (folder / "requirements.lock").read_text() == "torch==2.10.0\n"
