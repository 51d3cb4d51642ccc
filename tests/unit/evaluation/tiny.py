"""A target small enough to be enumerated, and drafts for it."""

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from eagle3.draft.config import draft_config_for
from eagle3.draft.export import export_draft
from eagle3.draft.model import DraftModel
from eagle3.draft.provenance import Provenance
from eagle3.draft.target_weights import read_target_weights
from eagle3.draft.vocabulary import VocabularyMap

POINTS = (1, 2, 3)

# Over matrices this small, threads only wait for each other.
torch.set_num_threads(1)


def make_llama(folder: Path, vocab_size: int, **options: Any) -> Path:
    """A random Llama of four layers whose next token is neither certain nor arbitrary."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.2,
        tie_word_embeddings=False,
        **options,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def make_draft(target: Path, draft_vocab_size: int, seed: int = 0) -> DraftModel:
    """A random draft with a random vocabulary."""
    torch.manual_seed(seed)
    weights = read_target_weights(target)
    vocab_size = len(weights.embed_tokens_VH)
    model = DraftModel(draft_config_for(target, draft_vocab_size, POINTS))
    vocabulary = VocabularyMap.of(torch.randperm(vocab_size)[:draft_vocab_size], vocab_size)
    model.take_from_target(weights, vocabulary, train_head=True)
    return model


def export(target: Path, draft_vocab_size: int, folder: Path, seed: int = 0) -> Path:
    """Such a draft in a folder."""
    export_draft(make_draft(target, draft_vocab_size, seed), folder, Provenance(target))
    return folder
