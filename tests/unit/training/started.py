"""Tiny trainings in processes of their own, as torchrun starts them."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from eagle3.training.log import METRICS, read_records

PROGRAM = (sys.executable, "-m", "tests.unit.training.train_tiny")


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def start(world: Path, count: int, *arguments: str, **flags: Any) -> list[subprocess.Popen[str]]:
    """Starts `count` processes, each with the configuration's keys `flags`."""
    port = str(free_port())
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
                "MASTER_PORT": port,
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


def end(processes: list[subprocess.Popen[str]], expected: int = 0) -> None:
    """Waits for them; the test fails where one ends otherwise than `expected`."""
    for process in processes:
        _, stderr = process.communicate(timeout=200)
        assert process.returncode == expected, stderr


def curve(out: Path) -> list[float]:
    """The losses of a run, validations included."""
    return [record["loss"] for record in read_records(out / METRICS)]
