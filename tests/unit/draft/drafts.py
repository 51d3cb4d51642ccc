"""Small drafts and the folders of their targets."""

import json
from pathlib import Path
from typing import Any

import torch

from eagle3.draft.config import draft_config_for
from eagle3.draft.model import DraftModel
from eagle3.draft.target_weights import TargetWeights
from eagle3.draft.vocabulary import VocabularyMap

VOCAB_SIZE = 64
DRAFT_VOCAB_SIZE = 16
NUM_LAYERS = 8
HIDDEN_SIZE = 32

_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": NUM_LAYERS,
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}


def make_target_config(folder: Path, **changes: Any) -> Path:
    """A target's folder with a config.json and nothing else."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(_CONFIG | changes))
    return folder


def make_draft(
    target: Path, points: tuple[int, ...] = (2, 4, 5), seed: int = 0, **overrides: Any
) -> DraftModel:
    """A random draft with a random vocabulary, its embeddings bfloat16 as a target's are."""
    torch.manual_seed(seed)
    model = DraftModel(draft_config_for(target, DRAFT_VOCAB_SIZE, points, **overrides))
    embed_tokens_VH = torch.randn(VOCAB_SIZE, HIDDEN_SIZE).to(torch.bfloat16)
    weights = TargetWeights(
        embed_tokens_VH,
        torch.randn(VOCAB_SIZE, HIDDEN_SIZE).to(torch.bfloat16),
        torch.rand(HIDDEN_SIZE).to(torch.bfloat16),
        1e-5,
    )
    vocabulary = VocabularyMap.of(torch.randperm(VOCAB_SIZE)[:DRAFT_VOCAB_SIZE], VOCAB_SIZE)
    model.take_from_target(weights, vocabulary, train_head=True)
    return model
