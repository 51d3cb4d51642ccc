"""Our training step, with random weights and states."""

from collections.abc import Callable

import torch

from eagle3.benchmark.training.shape import BenchShape
from eagle3.draft.model import DraftModel
from eagle3.draft.target_weights import TargetWeights
from eagle3.draft.vocabulary import VocabularyMap
from eagle3.training.teacher import Teacher
from eagle3.training.unroll import UnrollOptions, unrolled_loss


def our_step(shape: BenchShape, device: torch.device) -> Callable[[int], torch.Tensor]:
    """A step as `train` does it: loss, gradients, clipping, AdamW.

    Computes in bf16 on a GPU and in fp32 on a CPU.
    """
    torch.manual_seed(0)
    config = shape.config
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
    teacher = Teacher.of(weights, vocabulary)
    optimizer = torch.optim.AdamW(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=1e-4,
        fused=device.type == "cuda",
    )
    batches = shape.batches(device)
    options = UnrollOptions(
        steps=shape.unroll_steps,
        decay=1.0,
        compute_dtype=torch.bfloat16 if device.type == "cuda" else torch.float32,
    )

    def step(number: int) -> torch.Tensor:
        # Only the step after the first has the other packing: the timed ones have equal documents.
        batch = batches[1 if number == 1 else 0]
        loss = unrolled_loss(model, teacher, batch, options)
        loss.total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.total.detach()

    return step


def _random(shape: tuple[int, int], device: torch.device) -> torch.Tensor:
    return 0.02 * torch.randn(shape, dtype=torch.bfloat16, device=device)
