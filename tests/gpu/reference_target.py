"""Kimi-K2.5's language model as a configuration with random weights, as deep as wanted."""

import json
from pathlib import Path
from typing import Any

from eagle3.benchmark.extraction.workload import write_target
from eagle3.errors import InputError

FULL_DEPTH = 61
# After-layer ids of the reference run.
REFERENCE_LAYERS = (2, 30, 58, 60)
_SHAPE = "kimi-k2.5-8-layers"
# The same family in a size for a test. INT4 fails on vLLM's CPU build, so weights are bfloat16.
_TINY: dict[str, Any] = {
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 128,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "intermediate_size": 512,
    "moe_intermediate_size": 128,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 2048,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "quantization_config": None,
}


def write_reference_target(folder: Path, layers: int, *, tiny: bool) -> Path:
    """Makes the target's folder, without weights; `tiny` for a CPU."""
    target = write_target(_SHAPE, folder)
    path = target / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["num_hidden_layers"] = layers
    if tiny:
        config = {key: value for key, value in (config | _TINY).items() if value is not None}
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")
    return target.rename(folder / ("tiny-kimi" if tiny else f"kimi-k2.5-{layers}-layers"))


def captured_layers(layers: int) -> tuple[int, ...]:
    """The reference's after-layer ids, or those in like places of a target of fewer layers.

    Raises InputError for a target too shallow for four.
    """
    if layers == FULL_DEPTH:
        return REFERENCE_LAYERS
    if layers < 6:
        raise InputError(f"--layers {layers} leaves no place for four captured layers; give 6")
    return (2, layers // 2, layers - 3, layers - 1)


def weight_bytes(config: dict[str, Any]) -> int:
    """What the weights of such a target take in memory, on all ranks together.

    Attention is taken as divided among the ranks, though each holds the latent projections whole.
    """
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    nope, rope, value = (config[f"{name}_head_dim"] for name in ("qk_nope", "qk_rope", "v"))
    query, latent = config["q_lora_rank"], config["kv_lora_rank"]
    attention = (
        hidden * (query + latent + rope)
        + query * heads * (nope + rope)
        + latent * heads * (nope + value)
        + heads * value * hidden
    )
    expert = 3 * hidden * config["moe_intermediate_size"]
    routed = config["n_routed_experts"] * expert
    weights = (config.get("quantization_config") or {}).get("config_groups", {}).get("group_0")
    # Four bits and a bfloat16 scale a group, or bfloat16.
    routed_bytes = routed * (0.5 + 2 / weights["weights"]["group_size"]) if weights else 2 * routed
    dense_layers = config["first_k_dense_replace"]
    experts = config["num_hidden_layers"] - dense_layers
    plain = (
        config["num_hidden_layers"] * attention
        + dense_layers * 3 * hidden * config["intermediate_size"]
        + experts * (config["n_shared_experts"] * expert + config["n_routed_experts"] * hidden)
        + 2 * config["vocab_size"] * hidden
    )
    return int(experts * routed_bytes) + 2 * plain
