"""Tiny trainings in processes of their own, as torchrun starts them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

from eagle3.training.log import METRICS, read_records

PROGRAM = (sys.executable, "-m", "tests.unit.training.train_tiny")


# Where the processes of each training meet, for as long as this one lives.
_meeting_points: list[TCPStore] = []


def start(world: Path, count: int, *arguments: str, **flags: Any) -> list[subprocess.Popen[str]]:
    """Starts `count` processes, each with the configuration's keys `flags`."""
    # Opened here, as by torchrun: a port that was only seen to be free may be another's by then.
    meeting_point = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    _meeting_points.append(meeting_point)
    return [
        subprocess.Popen(
            [*PROGRAM, str(world), json.dumps(flags), *arguments],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(meeting_point.port),
                "TORCHELASTIC_USE_AGENT_STORE": "True",
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


def end(processes: list[subprocess.Popen[str]], expected: int = 0) -> None:
    """Waits for them; the test fails where one ends otherwise than `expected`."""
    for process in processes:
        _, stderr = process.communicate(timeout=600)
        assert process.returncode == expected, stderr


def curve(out: Path) -> list[float]:
    """The losses of a run, validations included."""
    return [record["loss"] for record in read_records(out / METRICS)]
