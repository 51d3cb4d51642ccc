"""speculators' training step, measured in a process of its own.

It may need another environment than ours, and what it leaves on the GPU must not count as ours.
As a program it reads a shape from its argument and prints one line of JSON.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from eagle3.benchmark.training.measure import Measurement, measure
from eagle3.benchmark.training.shape import BenchShape

_TREE = Path(__file__).parents[3]
# Some compile for a hundred seconds; one that hangs must not take the others' figures along.
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class PeerMeasurement:
    """`version` of speculators, and what its step took."""

    version: str
    measurement: Measurement


def measure_peer(
    shape: BenchShape, site: Path | None, device: torch.device, rounds: int
) -> PeerMeasurement | str:
    """Measures the speculators in the folder `site`, or the one of this environment.

    Returns the reason, one line, where there is none or it fails: a bench of ours goes on.
    """
    request = {**asdict(shape), "device": device.type, "rounds": rounds}
    paths = [str(_TREE), *([str(site)] if site else []), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, paths)))}
    if device.type == "cpu":
        # What it compiles does not compile for a CPU.
        environment["TORCHDYNAMO_DISABLE"] = "1"
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "eagle3.benchmark.training.peer", json.dumps(request)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"{site or 'the installed speculators'} was not done after {_TIMEOUT_S:.0f} s"
    if ended.returncode:
        return (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return PeerMeasurement(answer.pop("version"), Measurement(**answer))


def main() -> None:
    # Here only: the parent must not import speculators.
    from eagle3.engine.peer_draft import PeerRows, peer_step, peer_version

    request = json.loads(sys.argv[1])
    device, rounds = torch.device(request.pop("device")), request.pop("rounds")
    shape = BenchShape.of_dict(request)
    batch = shape.batches(device)[0]
    rows = PeerRows(batch.input_ids_T, batch.hidden_states_TLH, batch.document_T, batch.position_T)
    step = peer_step(shape.config, rows, shape.unroll_steps, device)
    measured = measure(step, shape.tokens, device, rounds)
    print(json.dumps({"version": peer_version(), **asdict(measured)}))


if __name__ == "__main__":
    main()
