"""A tiny draft of a tiny target, and its unrolled loss."""

from dataclasses import replace

import torch

from eagle3.draft.config import DraftConfig
from eagle3.draft.model import DraftModel
from eagle3.draft.target_weights import TargetWeights
from eagle3.draft.vocabulary import VocabularyMap
from eagle3.training.batch import PackedBatch
from eagle3.training.teacher import Teacher
from eagle3.training.unroll import Feed, UnrolledLoss, UnrollOptions, unrolled_loss
from tests.unit.training.rows import packed

# Tensors so small that threads would only wait for each other.
torch.set_num_threads(1)

V, D, H = 60, 8, 16
CONFIG = DraftConfig(
    vocab_size=V,
    draft_vocab_size=D,
    hidden_size=H,
    intermediate_size=20,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=64,
    capture_points=(1, 2, 3),
)
LENGTHS = [7, 1, 2, 3, 48]


def target() -> tuple[TargetWeights, VocabularyMap]:
    generator = torch.Generator().manual_seed(1)
    embed, head = (torch.randn(V, H, generator=generator).to(torch.bfloat16) for _ in range(2))
    norm = torch.rand(H, generator=generator).to(torch.bfloat16)
    vocabulary = VocabularyMap.of(torch.randperm(V, generator=generator)[:D], V)
    return TargetWeights(embed, head, norm, 1e-5), vocabulary


def draft(*, train_head: bool = True, norm_before_residual: bool = False) -> DraftModel:
    torch.manual_seed(2)
    model = DraftModel(replace(CONFIG, norm_before_residual=norm_before_residual))
    model.take_from_target(*target(), train_head=train_head)
    return model


def rows(lengths: list[int] = LENGTHS, padding: int = 4, seed: int = 3) -> PackedBatch:
    return packed(lengths, padding=padding, vocab_size=V, hidden_size=H, seed=seed)


def unrolled(
    model: DraftModel,
    batch: PackedBatch,
    denominator_S: torch.Tensor | None = None,
    feed: Feed = "true",
) -> UnrolledLoss:
    options = UnrollOptions(4, 0.8, feed, torch.float32)
    return unrolled_loss(model, Teacher.of(*target()), batch, options, denominator_S)
