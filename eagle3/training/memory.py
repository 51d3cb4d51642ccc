"""How much memory of a device a training takes."""

from dataclasses import dataclass, replace

import torch

from eagle3.draft.config import FUSED_POINTS, DraftConfig
from eagle3.store.row_format import BFLOAT16
from eagle3.training.plan import TrainingPlan

# Batches that lie on a device at once.
_BATCHES = 2


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes on one device. All but `activations` follow from shapes; that one is an estimate."""

    weights: int  # what is trained, in fp32
    gradients: int
    optimizer: int
    frozen: int  # embeddings, heads, norms
    batches: int
    activations: int

    @property
    def total(self) -> int:
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.frozen
            + self.batches
            + self.activations
        )


def trained_parameters(config: DraftConfig, *, train_head: bool) -> int:
    """Elements that are trained."""
    return _layer_parameters(config) + _other_parameters(config, train_head=train_head)


def _layer_parameters(config: DraftConfig) -> int:
    """Elements of the fusion's and the layer's matrices, which Muon takes."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    attention = 2 * hidden * (queries + 2 * keys) + queries * hidden
    return FUSED_POINTS * hidden * hidden + attention + 3 * hidden * inner


def _other_parameters(config: DraftConfig, *, train_head: bool) -> int:
    """Elements of the norms, and of the head where it is trained."""
    return config.hidden_size * (4 + (config.draft_vocab_size if train_head else 0))


def plan_memory(plan: TrainingPlan, processes: int, dtype: torch.dtype) -> MemoryPlan:
    """What each of `processes` devices needs; `dtype` is that of the activations.

    A row of an unrolled step keeps, for the backward pass, the layer's inputs and outputs (about
    ten of hidden size), queries, keys and values, and three of the MLP's width.
    """
    config, options = plan.draft, plan.config
    others = _other_parameters(config, train_head=options.draft.train_head)
    trained = _layer_parameters(config) + others
    # Muon remembers one number of each element of its matrices, AdamW two of each of its own.
    remembered = trained + (others if options.optimizer.optimizer == "muon" else trained)
    remembered += trained if options.optimizer.ema else 0
    parts = processes if options.run.parallel == "fsdp" else 1
    # Embeddings, the teacher's head and, where it is not trained, the draft's, as the target
    # stores them (bf16).
    heads = 1 if options.draft.train_head else 2
    frozen = 2 * config.hidden_size * (config.vocab_size + heads * config.draft_vocab_size)
    manifest = replace(plan.training.store.manifest, dtype=BFLOAT16)
    width = 10 * config.hidden_size + 3 * config.intermediate_size
    width += 2 * config.head_dim * (config.num_attention_heads + config.num_key_value_heads)
    rows = plan.capacity * (options.unroll.unroll_steps * width + config.draft_vocab_size)
    return MemoryPlan(
        weights=4 * trained // parts,
        gradients=4 * trained // parts,
        optimizer=4 * remembered // parts,
        frozen=frozen,
        batches=_BATCHES * manifest.states_bytes(plan.capacity),
        activations=dtype.itemsize * rows,
    )
