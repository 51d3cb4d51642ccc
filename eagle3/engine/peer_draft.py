"""speculators' own draft and its training step, to be measured beside ours.

Knows 0.3.0, which the stack pins, and 0.9.0, which needs another transformers and so runs in an
environment of its own.
"""

import importlib
import importlib.metadata
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from speculators.config import SpeculatorsConfig, VerifierConfig
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from speculators.proposals.greedy import GreedyTokenProposalConfig
from transformers import LlamaConfig

from eagle3.draft.config import DraftConfig
from eagle3.draft.vocabulary import VocabularyMap


@dataclass(frozen=True)
class PeerRows:
    """The rows of a step, before the shift that speculators' data loader makes."""

    input_ids_T: torch.Tensor
    hidden_states_TLH: torch.Tensor
    document_T: torch.Tensor
    position_T: torch.Tensor


def peer_version() -> str:
    return importlib.metadata.version("speculators")


def peer_step(
    config: DraftConfig, rows: PeerRows, unroll_steps: int, device: torch.device
) -> Callable[[int], torch.Tensor]:
    """A step as speculators' trainer does it, with random weights: loss, clipping, AdamW.

    0.3.0 computes in fp32 and trains its head; 0.9.0 under bf16 autocast, its head frozen, with
    its plain KL loss (its fused one does not compile on torch 2.11).
    """
    torch.manual_seed(0)
    vocabulary = VocabularyMap.of(torch.arange(config.draft_vocab_size) * 2, config.vocab_size)
    is_old = peer_version().startswith("0.3.")
    make = _make_old if is_old else _make_new
    model = make(config, vocabulary, unroll_steps).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    # On a CPU flex attention has no backward pass in bf16.
    autocast = not is_old and device.type == "cuda"
    dtype = torch.bfloat16 if autocast else torch.float32
    batch = _old_batch(rows, dtype) if is_old else _new_batch(rows, dtype)

    def step(_number: int) -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            _tokens, loss, _metrics = model(**batch, ttt_steps=unroll_steps)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def speculator_config(config: DraftConfig, unroll_steps: int, verifier: str) -> Any:
    """speculators' own configuration of the draft, for the target in the folder `verifier`."""
    layer = LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=1,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        max_position_embeddings=config.max_position_embeddings,
        rms_norm_eps=config.rms_norm_eps,
        rope_theta=config.rope_theta,
        rope_scaling=config.rope_scaling,
    )
    layer._attn_implementation = "simple_flex_attention"
    return Eagle3SpeculatorConfig(
        transformer_layer_config=layer,
        draft_vocab_size=config.draft_vocab_size,
        norm_before_residual=config.norm_before_residual,
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=unroll_steps)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=verifier, architectures=["LlamaForCausalLM"]),
        ),
    )


def _make_old(config: DraftConfig, vocabulary: VocabularyMap, unroll_steps: int) -> Any:
    """0.3.0 takes embeddings and head from a checkpoint, so one is written for it."""
    size = (config.vocab_size, config.hidden_size)
    with tempfile.TemporaryDirectory() as folder:
        weights = {
            name: 0.02 * torch.randn(size, dtype=torch.bfloat16)
            for name in ("model.embed_tokens.weight", "lm_head.weight")
        }
        save_file(weights, Path(folder, "model.safetensors"))
        target = {"model_type": "llama", "vocab_size": size[0], "hidden_size": size[1]}
        Path(folder, "config.json").write_text(json.dumps(target), encoding="utf-8")
        speculator = speculator_config(config, unroll_steps, folder)
        return Eagle3DraftModel(speculator, vocabulary.t2d_V, vocabulary.d2t_D)


def _make_new(config: DraftConfig, vocabulary: VocabularyMap, unroll_steps: int) -> Any:
    make: Any = Eagle3DraftModel
    model = make(speculator_config(config, unroll_steps, "random"))
    model.load_vocab_mappings(vocabulary.t2d_V, vocabulary.d2t_D)
    for module in (model.embed_tokens, model.lm_head, model.verifier_lm_head):
        torch.nn.init.normal_(module.weight, std=0.02)
        module.weight.requires_grad_(False)
    return model


def _old_batch(rows: PeerRows, dtype: torch.dtype) -> dict[str, Any]:
    lengths = torch.unique_consecutive(rows.document_T, return_counts=True)[1]
    return {**_batch(rows, dtype), "lengths": lengths}


def _new_batch(rows: PeerRows, dtype: torch.dtype) -> dict[str, Any]:
    losses: Any = importlib.import_module("speculators.losses")
    return {
        **_batch(rows, dtype),
        "document_ids": rows.document_T[None],
        "loss_config": losses.resolve_loss_config("kl_div", "eager"),
    }


def _batch(rows: PeerRows, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Tokens and teacher one row ahead; the rows at the ends of documents do not matter here."""
    states_TLH = rows.hidden_states_TLH.to(dtype)
    return {
        "hidden_states": states_TLH[None, :, :-1].flatten(2).contiguous(),
        "verifier_last_hidden_states": states_TLH[None, :, -1].roll(-1, 1).contiguous(),
        "input_ids": rows.input_ids_T[None].roll(-1, 1),
        "loss_mask": torch.ones_like(rows.input_ids_T, dtype=torch.bool)[None],
        "position_ids": 1 + rows.position_T[None],
    }
