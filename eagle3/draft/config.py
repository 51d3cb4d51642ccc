"""The shape of a draft: only what vLLM 0.16's draft class can serve."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eagle3.errors import InputError

FUSED_POINTS = 3
_LATENT_HEAD_DIM = 128

# The scalings that `rotary.py` knows, each with the keys that vLLM 0.16 and transformers 4.57 read
# alike. YaRN's `mscale` keys of DeepSeek are not among them: vLLM ignores them for a Llama layer,
# transformers does not, and a draft learns to live without.
_ROPE_KEYS = {
    "linear": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
    "yarn": ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow"),
}


@dataclass(frozen=True)
class DraftConfig:
    """One Llama decoder layer over [embedding; fused state]; sizes in elements.

    `vocab_size` and `hidden_size` are the target's: the draft reads its states and embeddings.
    `capture_points` are the three fused ones, in the order in which they are concatenated.
    `rope_scaling` has `rope_type` linear, llama3 or yarn; None is plain rotary embedding.
    `norm_before_residual`: the residual stream begins after `hidden_norm`, not before.
    """

    vocab_size: int
    draft_vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    capture_points: tuple[int, ...]
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    norm_before_residual: bool = False

    def __post_init__(self) -> None:
        """Raises InputError where the parts do not fit each other."""
        if len(self.capture_points) != FUSED_POINTS:
            raise InputError(
                f"a draft fuses {FUSED_POINTS} capture points, not {len(self.capture_points)}: "
                f"{list(self.capture_points)}"
            )
        if not 0 < self.draft_vocab_size <= self.vocab_size:
            raise InputError(
                f"a draft vocabulary of {self.draft_vocab_size:,} tokens does not fit a target "
                f"of {self.vocab_size:,}; choose 1 to {self.vocab_size:,}"
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise InputError(
                f"{self.num_attention_heads} attention heads cannot share "
                f"{self.num_key_value_heads} key-value heads; choose a divisor"
            )
        if self.head_dim % 2:
            raise InputError(f"rotary embedding needs an even head_dim, not {self.head_dim}")

    @property
    def target_hidden_size(self) -> int:
        """The width of the target's states: the draft's own, whose embeddings are the target's."""
        return self.hidden_size


def draft_config_for(
    target_model_folder: Path,
    draft_vocab_size: int,
    capture_points: Sequence[int],
    **overrides: Any,
) -> DraftConfig:
    """The draft that suits a target, from its config.json (Llama family, DeepSeek, Kimi).

    `overrides` are fields of DraftConfig. Targets with latent attention or experts have no
    attention and MLP sizes that a Llama layer could take over: they get heads of 128 and the
    width of their dense layers. Raises InputError where the file is missing or says too little.
    """
    path = target_model_folder / "config.json"
    try:
        outer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        text: dict[str, Any] = outer.get("text_config") or outer
        heads, groups, head_dim = _heads(text)
        rope_theta, rope_scaling = _rope(text)
        config = DraftConfig(
            vocab_size=text["vocab_size"],
            draft_vocab_size=draft_vocab_size,
            hidden_size=text["hidden_size"],
            intermediate_size=text["intermediate_size"],
            num_attention_heads=heads,
            num_key_value_heads=groups,
            head_dim=head_dim,
            max_position_embeddings=text.get("max_position_embeddings", 2048),
            capture_points=tuple(capture_points),
            rms_norm_eps=text.get("rms_norm_eps", 1e-5),
            rope_theta=rope_theta,
            rope_scaling=rope_scaling,
        )
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; complete the folder") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path} does not describe a decoder: {error}; complete it") from error
    return replace(config, **overrides)


def _heads(text: dict[str, Any]) -> tuple[int, int, int]:
    """Attention heads, key-value heads and head_dim."""
    hidden_size, heads = int(text["hidden_size"]), int(text["num_attention_heads"])
    if "kv_lora_rank" not in text:
        groups = text.get("num_key_value_heads") or heads
        return heads, groups, text.get("head_dim") or hidden_size // heads
    heads = max(1, hidden_size // _LATENT_HEAD_DIM)
    return heads, next(n for n in (8, 4, 2, 1) if heads % n == 0), _LATENT_HEAD_DIM


def _rope(text: dict[str, Any]) -> tuple[float, dict[str, Any] | None]:
    """`rope_theta` and `rope_scaling`; transformers 5 writes both into `rope_parameters`."""
    scaling = text.get("rope_parameters") or text.get("rope_scaling") or {}
    theta = scaling.get("rope_theta") or text.get("rope_theta") or 10000.0
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind not in _ROPE_KEYS:
        return float(theta), None
    kept = {key: scaling[key] for key in _ROPE_KEYS[kind] if scaling.get(key) is not None}
    return float(theta), {"rope_type": kind, **kept}
