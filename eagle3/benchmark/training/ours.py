"""Our training step, with random weights and states."""

from collections.abc import Callable
from typing import Literal

import torch

from eagle3.benchmark.training.shape import BenchShape
from eagle3.draft.model import DraftModel
from eagle3.draft.target_weights import TargetWeights
from eagle3.draft.vocabulary import VocabularyMap
from eagle3.training.arithmetic import compute_dtype
from eagle3.training.distributed import Processes
from eagle3.training.parallel import LossModule, backward, spread
from eagle3.training.shift import counted_rows
from eagle3.training.teacher import Teacher
from eagle3.training.unroll import UnrollOptions

Parallel = Literal["ddp", "fsdp"]


def our_step(
    shape: BenchShape, processes: Processes, parallel: Parallel = "ddp"
) -> Callable[[int], torch.Tensor]:
    """A step as `train` does it: loss, gradients, their exchange, clipping, AdamW.

    Computes in bf16 on a GPU and in fp32 on a CPU. Each process has a whole `shape` of rows.
    """
    torch.manual_seed(0)
    device, config = processes.device, shape.config
    vocabulary = VocabularyMap.of(torch.arange(config.draft_vocab_size) * 2, config.vocab_size)
    weights = TargetWeights(
        _random((config.vocab_size, config.hidden_size), device),
        _random((config.vocab_size, config.hidden_size), device),
        torch.ones(config.hidden_size, dtype=torch.bfloat16, device=device),
        config.rms_norm_eps,
    )
    with device:
        model = DraftModel(config)
    model.take_from_target(weights, vocabulary, train_head=shape.train_head)
    if shape.fp8:
        model.multiply_in_fp8()
    dtype = compute_dtype(device)
    options = UnrollOptions(steps=shape.unroll_steps, decay=1.0, compute_dtype=dtype)
    loss_of = LossModule(model, Teacher.of(weights, vocabulary), options)
    module = spread(loss_of, processes, parallel, dtype)
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=device.type == "cuda")
    batches = shape.batches(device)
    counted_BS = [
        processes.count * counted_rows(batch, shape.unroll_steps).to(device) for batch in batches
    ]

    def step(number: int) -> torch.Tensor:
        # Only the step after the first has the other packing: the timed ones have equal documents.
        packing = 1 if number == 1 else 0
        loss, _sums = module(batches[packing], counted_BS[packing])
        backward(loss, processes)
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def _random(shape: tuple[int, int], device: torch.device) -> torch.Tensor:
    return 0.02 * torch.randn(shape, dtype=torch.bfloat16, device=device)
