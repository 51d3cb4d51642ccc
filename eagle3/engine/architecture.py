"""What a target's config.json says, read without loading anything."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3.errors import InputError


@dataclass(frozen=True)
class TargetArchitecture:
    """The facts of a target that extraction depends on.

    `latent_attention` is true for multi-head latent attention (DeepSeek-V2, DeepSeek-V3,
    Kimi-K2.5). `modality` is vLLM's name of the one input beside text that must be switched off,
    or None.
    """

    model_type: str
    num_layers: int
    hidden_size: int
    vocab_size: int
    max_position_embeddings: int | None
    dtype: str | None
    latent_attention: bool = False
    modality: str | None = None


# vllm/model_executor/models/kimi_k25.py (0.16.0), get_supported_mm_limits
_MODALITIES = {"kimi_k25": "vision_chunk"}


def read_architecture(model: Path) -> TargetArchitecture:
    """Reads `config.json` of a checkpoint folder; multimodal ones nest it as `text_config`.

    Raises InputError where the folder or the file is missing, or says too little.
    """
    path = model / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"no config.json in {model}: give the folder of a checkpoint in Hugging Face format"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if not isinstance(config, dict):
        raise InputError(f"{path} is not a JSON object")
    text_config = config.get("text_config") or config
    if not isinstance(text_config, dict):
        raise InputError(f"text_config in {path} is not a JSON object")
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise InputError(f"{path} has no model_type")
    positions = text_config.get("max_position_embeddings")
    return TargetArchitecture(
        model_type=model_type,
        num_layers=_positive(text_config, "num_hidden_layers", path),
        hidden_size=_positive(text_config, "hidden_size", path),
        vocab_size=_positive(text_config, "vocab_size", path),
        max_position_embeddings=(
            None if positions is None else _positive(text_config, "max_position_embeddings", path)
        ),
        dtype=_dtype(text_config) or _dtype(config),
        latent_attention=text_config.get("kv_lora_rank") is not None,
        modality=_MODALITIES.get(model_type),
    )


def _positive(config: dict[str, Any], key: str, path: Path) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{key} in {path} must be a positive number, not {value!r}")
    return value


def _dtype(config: dict[str, Any]) -> str | None:
    # transformers renamed the key; checkpoints have either.
    return config.get("dtype") or config.get("torch_dtype")
