"""Our step in several processes of this machine, one a GPU.

As a program it is one of them: it reads a request from its argument, and the first writes what
was measured into the file that the request names.
"""

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from eagle3.benchmark.training.measure import Measurement, measure
from eagle3.benchmark.training.ours import Parallel, our_step
from eagle3.benchmark.training.shape import BenchShape
from eagle3.errors import Eagle3Error
from eagle3.training.distributed import joined_processes
from eagle3.training.launch import launch


def measure_processes(
    shape: BenchShape, count: int, parallel: Parallel, rounds: int
) -> Measurement:
    """Measures `count` processes that each train on a whole `shape` of rows.

    `tokens_per_s` is of all together. Raises Eagle3Error where one of them fails.
    """
    with tempfile.TemporaryDirectory(prefix="eagle3-bench-") as folder:
        answer = Path(folder, "answer.json")
        request = {**asdict(shape), "parallel": parallel, "rounds": rounds, "answer": str(answer)}
        code = launch(count, "eagle3.benchmark.training.processes", [json.dumps(request)])
        if code:
            raise Eagle3Error(f"{count} processes ({parallel}) did not train: exit code {code}")
        return Measurement(**json.loads(answer.read_text(encoding="utf-8")))


def main() -> None:
    request = json.loads(sys.argv[1])
    parallel, rounds, answer = (request.pop(key) for key in ("parallel", "rounds", "answer"))
    shape = BenchShape.of_dict(request)
    with joined_processes() as processes:
        step = our_step(shape, processes, parallel)
        measured = measure(step, processes.count * shape.tokens, processes.device, rounds)
        if processes.is_first:
            Path(answer).write_text(json.dumps(asdict(measured)), encoding="utf-8")


if __name__ == "__main__":
    main()
