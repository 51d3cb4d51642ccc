"""The names of the files in a store's folder and of the tensors in a shard."""

import re
from collections.abc import Iterable
from pathlib import Path

HIDDEN_STATES = "hidden_states"
# Another name, so that a program that does not know of the scales takes them for nothing else.
HIDDEN_STATES_FP8 = "hidden_states_fp8"
INPUT_IDS = "input_ids"
LOSS_MASK = "loss_mask"
SAMPLE_OFFSETS = "sample_offsets"

_SHARD = re.compile(r"shard-(\d{5,})\.safetensors")


def shard_name(number: int) -> str:
    return f"shard-{number:05d}.safetensors"


def journal_path(shard: Path) -> Path:
    """The notes on a shard in work, beside it."""
    return shard.with_suffix(".journal")


def next_shard_number(names: Iterable[str]) -> int:
    """The first number that no shard in `names`, committed or in work, has had."""
    numbers = map(_SHARD.match, names)
    return max((int(number[1]) + 1 for number in numbers if number), default=0)
