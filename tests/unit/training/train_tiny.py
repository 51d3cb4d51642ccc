"""A tiny training as a process of its own, on the folder and with the flags that it is given."""

import json
import signal
import sys
from pathlib import Path

from eagle3.errors import Eagle3Error
from eagle3.progress import Progress
from eagle3.training.distributed import joined_processes
from tests.unit.training.tiny_run import run_training, tiny_config


class SignallingProgress(Progress):
    """Sends its own process a signal when the line of a step is said."""

    def __init__(self, line: str, number: int) -> None:
        self._line = line
        self._number = number

    def say(self, line: str) -> None:
        super().say(line)
        if line.startswith(self._line):
            signal.raise_signal(self._number)


def main(folder: str, flags: str, line: str = "no such line", number: str = "0") -> int:
    config = tiny_config(Path(folder), **json.loads(flags))
    with joined_processes() as processes:
        try:
            run_training(config, processes, SignallingProgress(line, int(number)))
        except Eagle3Error as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
