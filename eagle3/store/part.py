"""The share of one writer where several machines share the work of a store."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eagle3.errors import InputError

# What launchers say of a process: its number, and how many there are.
_LAUNCHERS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))
_FOLDER = "part-*-of-*"


@dataclass(frozen=True)
class Part:
    """Part `number` of `count`, counted from 0; 0 of 1 is all of the work."""

    number: int = 0
    count: int = 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def folder(self, store: Path) -> Path:
        """Where this part writes: nothing in it is written by another part."""
        if self.count == 1:
            return store
        return store / f"part-{self.number:05d}-of-{self.count:05d}"

    def holds(self, sample_id: str) -> bool:
        """Whether the sample belongs to this part: a function of its content alone."""
        return int(sample_id[:16], 16) % self.count == self.number


def parse_part(text: str) -> Part:
    """The part that `i/N` means. Raises InputError for anything else."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not int(match[1]) < int(match[2]):
        raise InputError(f"{text!r} is no share of the work; give i/N with i from 0 to N - 1")
    return Part(int(match[1]), int(match[2]))


def part_of_process(environment: Mapping[str, str]) -> Part:
    """The part that torchrun or SLURM gave this process; without them, all of the work."""
    for number, count in _LAUNCHERS:
        if environment.get(number) and environment.get(count):
            return parse_part(f"{environment[number]}/{environment[count]}")
    return Part()


def part_folders(store: Path) -> list[Path]:
    """The folders of all parts that have begun, in order."""
    return sorted(path for path in store.glob(_FOLDER) if path.is_dir())
