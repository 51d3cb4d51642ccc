"""What every road of a benchmark runs."""

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from eagle3.engine.options import EngineOptions
from eagle3.errors import InputError

_TARGETS = Path(__file__).parent / "targets"
# Below are the special tokens of the usual vocabularies.
_FIRST_TOKEN = 8


@dataclass(frozen=True)
class Workload:
    """`prompts` prompts of `length` random tokens each; `passes` timed runs in one process.

    `scratch` is the folder that takes the states, and is emptied after each pass.
    """

    options: EngineOptions
    vocab_size: int
    hidden_size: int
    prompts: int
    length: int
    passes: int
    scratch: Path

    @property
    def tokens(self) -> int:
        return self.prompts * self.length

    @property
    def row_bytes(self) -> int:
        """Bytes of a token's states."""
        return len(self.options.capture_points) * self.hidden_size * 2

    def token_ids(self) -> list[list[int]]:
        """The same prompts for every road and every pass."""
        chance = random.Random(0)
        return [
            [chance.randrange(_FIRST_TOKEN, self.vocab_size) for _ in range(self.length)]
            for _ in range(self.prompts)
        ]

    def warm_up(self) -> list[list[int]]:
        """Prompts of two full steps: kernels of every shape that counts are then compiled."""
        count = -(-2 * self.options.max_tokens_per_step // self.length)
        return self.token_ids()[: max(1, min(count, self.prompts))]


def target_names() -> list[str]:
    """Shapes of targets that come with the benchmark, to be run with random weights."""
    return sorted(path.stem for path in _TARGETS.glob("*.json"))


def write_target(name: str, folder: Path) -> Path:
    """Makes the folder of a target of a shape that comes with the benchmark, without weights."""
    config = _TARGETS / f"{name}.json"
    if not config.exists():
        raise InputError(f"no target {name}: there are {', '.join(target_names())}")
    target = folder / name
    target.mkdir(parents=True)
    shutil.copyfile(config, target / "config.json")
    return target
