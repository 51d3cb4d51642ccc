"""The draft with its loss as one module, alone, replicated (DDP) or sharded (FSDP2)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from eagle3.draft.model import DraftModel
from eagle3.training.batch import PADDING, PackedBatch
from eagle3.training.distributed import Processes
from eagle3.training.metrics import sums_of
from eagle3.training.teacher import Teacher
from eagle3.training.unroll import UnrollOptions, unrolled_loss


class LossModule(nn.Module):
    """From a batch to its loss, so that wrappers see one forward pass."""

    def __init__(self, draft: DraftModel, teacher: Teacher, options: UnrollOptions) -> None:
        super().__init__()
        self.draft = draft
        self._teacher = teacher
        self._options = options

    def forward(
        self, batch: PackedBatch, denominator_S: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The batch's part of the loss, and its sums [SUMS, S] (see metrics.py).

        `denominator_S` counts the rows of the whole step.
        """
        loss = unrolled_loss(self.draft, self._teacher, batch, self._options, denominator_S)
        return loss.total, sums_of(loss, denominator_S)


def spread(
    module: LossModule, processes: Processes, parallel: Literal["ddp", "fsdp"], dtype: torch.dtype
) -> nn.Module:
    """`module` for several processes, itself for one.

    Both kinds average gradients over the processes; `backward` makes that a sum.
    """
    if processes.count == 1:
        return module
    if parallel == "ddp":
        if processes.device.type == "cuda":
            # DDP's own splitting of compiled graphs refuses flex attention.
            torch._dynamo.config.optimize_ddp = False
        # The batch is on the device already: no device_ids, so that DDP does not look into it.
        return DistributedDataParallel(
            module, broadcast_buffers=False, gradient_as_bucket_view=True
        )
    frozen = {value for value in module.parameters() if not value.requires_grad}
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    fully_shard(module, mp_policy=policy, ignored_params=frozen)
    return module


def backward(loss: torch.Tensor, processes: Processes) -> None:
    """Adds the gradients of this process's part; after the last part, those of all processes."""
    (loss * processes.count).backward()


@contextmanager
def exchange(module: nn.Module, *, last: bool) -> Iterator[None]:
    """A part of a step, of which only the last one exchanges gradients."""
    if isinstance(module, DistributedDataParallel) and not last:
        with module.no_sync():
            yield
        return
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(last)
    yield


def release(module: nn.Module) -> None:
    """Drops whole weights that a pass without a backward one has left, before they are stale."""
    if isinstance(module, FSDPModule):
        module.reshard()


def add_noise(batch: PackedBatch, amount: float, seed: int, number: int) -> None:
    """Adds uniform noise from -amount to amount to the fused states of `batch`, in place.

    The last point, the teacher's, stays as it is. Batch `number` of a run has the same noise
    whichever process has it, and in a run that was resumed.
    """
    fused = batch.hidden_states_TLH[:, :-1]
    generator = _generator(fused.device, seed, number)
    noise = torch.empty(fused.shape, dtype=torch.float32, device=fused.device)
    fused += noise.uniform_(-amount, amount, generator=generator).to(fused.dtype)


def shuffle_states(batch: PackedBatch, seed: int, number: int) -> None:
    """Deals the fused states of `batch` to its rows by lot, in place; as `add_noise` otherwise.

    What a draft learns from such rows, it learns from the tokens alone. Padding has no states to
    give and keeps its own.
    """
    fused = batch.hidden_states_TLH[:, :-1]
    device = fused.device
    lots_T = torch.rand(len(fused), generator=_generator(device, seed, number), device=device)
    # Padding stands last: with the highest lots, it stays there.
    lots_T = lots_T.masked_fill(batch.document_T == PADDING, 1.0)
    fused.copy_(fused[lots_T.argsort(stable=True)])


def _generator(device: torch.device, seed: int, number: int) -> torch.Generator:
    # The CPU's generator takes 32 bits of a seed and drops the rest.
    mixed = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    return torch.Generator(device).manual_seed(mixed)
