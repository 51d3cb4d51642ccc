"""Compiled for a GPU, training computes what plain PyTorch does on a CPU, for all packings."""

import pytest
import torch

from eagle3.draft.config import DraftConfig
from eagle3.draft.model import DraftModel
from eagle3.draft.target_weights import TargetWeights
from eagle3.draft.vocabulary import VocabularyMap
from eagle3.training.batch import PackedBatch
from eagle3.training.teacher import Teacher
from eagle3.training.unroll import Feed, UnrollOptions, unrolled_loss
from tests.unit.training.rows import packed

CUDA = torch.device("cuda")
BF16 = torch.bfloat16
V, D, H, STEPS = 1000, 256, 128, 3
CONFIG = DraftConfig(
    vocab_size=V,
    draft_vocab_size=D,
    hidden_size=H,
    intermediate_size=192,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=512,
    capture_points=(1, 2, 3),
)


def draft_and_teacher() -> tuple[DraftModel, Teacher]:
    torch.manual_seed(0)
    weights = TargetWeights(
        torch.randn(V, H).to(torch.bfloat16),
        0.3 * torch.randn(V, H).to(torch.bfloat16),
        torch.rand(H).to(torch.bfloat16),
        1e-5,
    )
    vocabulary = VocabularyMap.of(torch.randperm(V)[:D], V)
    model = DraftModel(CONFIG)
    model.take_from_target(weights, vocabulary, train_head=True)
    return model, Teacher.of(weights, vocabulary)


def rows(lengths: list[int], padding: int) -> PackedBatch:
    return packed(lengths, padding=padding, vocab_size=V, hidden_size=H)


def loss_and_gradients(
    device: torch.device, batch: PackedBatch, options: UnrollOptions, *, fp8: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    model, teacher = draft_and_teacher()
    if fp8:
        model.multiply_in_fp8()
    loss = unrolled_loss(model.to(device), teacher.to(device), batch.to(device), options)
    loss.total.backward()
    gradients = [value.grad for value in model.parameters() if value.grad is not None]
    return loss.loss_S.cpu(), torch.cat([gradient.flatten() for gradient in gradients]).cpu()


def distance(mine: torch.Tensor, reference: torch.Tensor) -> float:
    return ((mine - reference).norm() / reference.norm()).item()


@pytest.mark.parametrize("feed", ["true", "argmax"])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-4), (BF16, 2e-2)])
def test_equals_plain_pytorch_on_a_cpu(feed: Feed, dtype: torch.dtype, bound: float) -> None:
    batch = rows([300, 1, 2, 150], padding=59)
    plain = UnrollOptions(STEPS, 0.8, feed, torch.float32)
    loss_S, gradients = loss_and_gradients(torch.device("cpu"), batch, plain)
    fast = UnrollOptions(STEPS, 0.8, feed, dtype)
    fast_loss_S, fast_gradients = loss_and_gradients(CUDA, batch, fast)
    assert distance(fast_loss_S, loss_S) < bound
    # Where two guesses are near each other, bf16 may take the other one: not the same function.
    if feed == "true" or dtype == torch.float32:
        assert distance(fast_gradients, gradients) < bound


def test_fp8_comes_near() -> None:
    batch = rows([300, 1, 2, 150], padding=59)
    plain, fast = (UnrollOptions(STEPS, compute_dtype=dtype) for dtype in (torch.float32, BF16))
    loss_S, gradients = loss_and_gradients(torch.device("cpu"), batch, plain)
    fp8_loss_S, fp8_gradients = loss_and_gradients(CUDA, batch, fast, fp8=True)
    assert distance(fp8_loss_S, loss_S) < 2e-2
    assert 5e-3 < distance(fp8_gradients, gradients) < 0.1


def test_one_compilation_serves_all_packings_and_nothing_waits_for_the_gpu() -> None:
    options = UnrollOptions(STEPS, 0.8)
    model, teacher = draft_and_teacher()
    model, teacher = model.to(CUDA), teacher.to(CUDA)
    batches = [
        rows(lengths, padding).to(CUDA)
        for lengths, padding in (([512], 0), ([100, 1, 300], 111), ([128] * 4, 0))
    ]
    unrolled_loss(model, teacher, batches[0], options).total.backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.compiler.set_stance("fail_on_recompile"):
            for batch in batches:
                unrolled_loss(model, teacher, batch, options).total.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
