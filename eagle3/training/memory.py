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
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    attention = 2 * hidden * (queries + 2 * keys) + queries * hidden
    norms = 4 * hidden
    head = hidden * config.draft_vocab_size if train_head else 0
    return FUSED_POINTS * hidden * hidden + attention + 3 * hidden * inner + norms + head


def plan_memory(plan: TrainingPlan, processes: int, dtype: torch.dtype) -> MemoryPlan:
    """What each of `processes` devices needs; `dtype` is that of the activations.

    A row of an unrolled step keeps, for the backward pass, the layer's inputs and outputs (about
    ten of hidden size), queries, keys and values, and three of the MLP's width.
    """
    config, options = plan.draft, plan.config
    trained = trained_parameters(config, train_head=options.draft.train_head)
    share = trained // processes if options.run.parallel == "fsdp" else trained
    moments = 1 if options.optimizer.optimizer == "muon" else 2
    mean = 1 if options.optimizer.ema else 0
    # Embeddings, the teacher's head and, where it is not trained, the draft's, as the target
    # stores them (bf16).
    heads = 1 if options.draft.train_head else 2
    frozen = 2 * config.hidden_size * (config.vocab_size + heads * config.draft_vocab_size)
    manifest = replace(plan.training.store.manifest, dtype=BFLOAT16)
    width = 10 * config.hidden_size + 3 * config.intermediate_size
    width += 2 * config.head_dim * (config.num_attention_heads + config.num_key_value_heads)
    rows = plan.capacity * (options.unroll.unroll_steps * width + config.draft_vocab_size)
    return MemoryPlan(
        weights=4 * share,
        gradients=4 * share,
        optimizer=4 * share * (moments + mean),
        frozen=frozen,
        batches=_BATCHES * manifest.states_bytes(plan.capacity),
        activations=dtype.itemsize * rows,
    )
