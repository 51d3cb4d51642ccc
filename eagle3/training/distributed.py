"""The processes that train together, as torchrun or SLURM started them."""

import os
import signal
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import distributed

from eagle3.errors import InputError
from eagle3.store.part import part_of_process

_LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID")


@dataclass(frozen=True)
class Processes:
    """This process is number `rank` of `count` and computes on `device`."""

    rank: int
    count: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this one speaks and writes for all."""
        return self.rank == 0

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """`tensor` itself, after every process has added its own to it."""
        if self.count > 1:
            distributed.all_reduce(tensor)
        return tensor

    def tell[Value](self, value: Value) -> Value:
        """The first process's `value`, in all of them."""
        if self.count == 1:
            return value
        told = [value]
        distributed.broadcast_object_list(told, src=0, device=torch.device("cpu"))
        return told[0]

    def wait(self) -> None:
        """Returns when all processes are here."""
        if self.count > 1:
            distributed.barrier()


@contextmanager
def joined_processes(environment: Mapping[str, str] = os.environ) -> Generator[Processes]:
    """Joins the other processes for as long as the context lasts; alone, does nothing.

    Raises InputError where a launcher names no meeting point, or started more than there are GPUs.
    """
    part = part_of_process(environment)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", _gpu(environment, torch.cuda.device_count()))
        torch.cuda.set_device(device)
    processes = Processes(part.number, part.count, device)
    if part.count == 1:
        yield processes
        return
    if not environment.get("MASTER_ADDR") or not environment.get("MASTER_PORT"):
        raise InputError(
            f"process {part} has nowhere to meet the others: set MASTER_ADDR and MASTER_PORT, as "
            "torchrun does"
        )
    # Who waits for the others does so in C, where no handler is heard: until the loop listens (see
    # stop.py), a launcher must be able to end at once those whose neighbour has failed.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Both, so that what the hosts agree on costs the GPUs nothing.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(
        backend,
        init_method="env://",
        rank=part.number,
        world_size=part.count,
        device_id=device if device.type == "cuda" else None,
    )
    try:
        yield processes
    finally:
        distributed.destroy_process_group()


def _gpu(environment: Mapping[str, str], count: int) -> int:
    """Which of the `count` GPUs that this process sees is its own."""
    local_rank = next((int(environment[key]) for key in _LOCAL_RANKS if environment.get(key)), 0)
    # SLURM shows each task its own GPU alone (--gpus-per-task); torchrun shows each process all.
    if count == 1 and not environment.get("LOCAL_RANK"):
        return 0
    if local_rank >= count:
        raise InputError(
            f"process {local_rank} of this machine has no GPU: it has {count}; start as many "
            "processes on it as it has GPUs"
        )
    return local_rank
