"""The GPUs of a host, and how they are shared out among workers."""

import csv
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from tools.remote.errors import ServiceError

# Tests ask for one of these as their lowest: Ampere, Ada, Hopper, Blackwell (B200, then RTX).
SM_LEVELS = (80, 89, 90, 100, 120)

_QUERY = ("nvidia-smi", "--query-gpu=index,name,compute_cap", "--format=csv,noheader")


_NONE = "No devices were found"


@dataclass(frozen=True)
class Gpu:
    """One device. kind: `nvidia-h200` for "NVIDIA H200"; sm: 90 for compute capability 9.0."""

    index: int
    kind: str
    sm: int


@dataclass(frozen=True)
class Slot:
    """Devices that one worker has to itself, for one test at a time."""

    gpus: tuple[Gpu, ...]

    @property
    def devices(self) -> str:
        return ",".join(str(gpu.index) for gpu in self.gpus)

    def properties(self) -> tuple[tuple[str, str], ...]:
        """What the worker of this slot offers: any kind or its own, every level up to its own."""
        weakest = min(gpu.sm for gpu in self.gpus)
        kinds = ["nvidia", *sorted({gpu.kind for gpu in self.gpus})]
        return (
            ("OSFamily", "linux"),
            ("Pool", "gpu"),
            *(("gpu", kind) for kind in kinds),
            ("gpu-count", str(len(self.gpus))),
            *(("gpu-sm", str(level)) for level in SM_LEVELS if level <= weakest),
        )


def detect() -> list[Gpu]:
    """The GPUs that nvidia-smi lists; none without a driver. ServiceError where it fails."""
    try:
        listing = subprocess.run(_QUERY, check=True, capture_output=True, text=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        return []
    if listing.startswith(_NONE):
        return []
    try:
        return parse(listing)
    except ValueError:
        words = " ".join(listing.split())[:200]
        raise ServiceError(
            f"nvidia-smi lists no GPUs but says: {words}; see to the driver"
        ) from None


def parse(listing: str) -> list[Gpu]:
    """Reads lines such as "0, NVIDIA H200, 9.0"; ValueError where they are something else."""
    gpus = []
    for index, name, capability in csv.reader(listing.splitlines(), skipinitialspace=True):
        major, _, minor = capability.partition(".")
        kind = "-".join(name.lower().split())
        gpus.append(Gpu(int(index), kind, 10 * int(major) + int(minor)))
    return gpus


def share_out(gpus: Sequence[Gpu], counts: Sequence[int]) -> list[Slot]:
    """One slot for each of `counts`, of neighbouring devices; no device in two slots.

    Raises ServiceError where counts ask for more devices than there are.
    """
    if sum(counts) > len(gpus) or min(counts, default=1) < 1:
        wanted = " + ".join(map(str, counts))
        raise ServiceError(f"slots of {wanted} GPUs do not fit the {len(gpus)} of this host")
    slots, begin = [], 0
    for count in counts:
        slots.append(Slot(tuple(gpus[begin : begin + count])))
        begin += count
    return slots


def gpu_counts(text: str) -> list[int]:
    """Reads "1,1,2"; ValueError where it is not such a list. An empty text means no slot."""
    return [int(count) for count in text.split(",") if count]
