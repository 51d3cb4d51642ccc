"""The three tensors of a target that a draft needs, read straight from its safetensors shards."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from eagle3.errors import InputError

_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class TargetWeights:
    """Embeddings, head and final norm as stored, in the target's own dtype.

    `lm_head_VH` is `embed_tokens_VH` itself where the target ties them.
    """

    embed_tokens_VH: torch.Tensor
    lm_head_VH: torch.Tensor
    final_norm_H: torch.Tensor
    rms_norm_eps: float


def read_target_weights(model_folder: Path) -> TargetWeights:
    """Reads three tensors of a checkpoint, however large the rest is.

    Raises InputError where a file or a name is missing, or the tensors do not fit each other.
    """
    text_config = _text_config(model_folder)
    files = _files_by_name(model_folder)
    embed_tokens_VH = _read(files, _candidates("model.embed_tokens.weight"), model_folder)
    final_norm_H = _read(files, _candidates("model.norm.weight"), model_folder)
    heads = _candidates("lm_head.weight")
    if any(name in files for name in heads):
        lm_head_VH = _read(files, heads, model_folder)
    elif text_config.get("tie_word_embeddings", True):
        lm_head_VH = embed_tokens_VH
    else:
        raise InputError(
            f"{model_folder} has no head ({', '.join(heads)}) and does not tie it to the "
            "embeddings; complete the folder"
        )
    if lm_head_VH.shape != embed_tokens_VH.shape or len(final_norm_H) != lm_head_VH.shape[1]:
        raise InputError(
            f"embeddings {list(embed_tokens_VH.shape)}, head {list(lm_head_VH.shape)} and norm "
            f"{list(final_norm_H.shape)} of {model_folder} do not fit each other"
        )
    eps = float(text_config.get("rms_norm_eps", 1e-6))
    return TargetWeights(embed_tokens_VH, lm_head_VH, final_norm_H, eps)


def _candidates(name: str) -> tuple[str, ...]:
    # model.language_model.* drops the inner "model.": model.language_model.embed_tokens.weight
    inner = name.removeprefix("model.")
    return (name, f"language_model.{name}", f"model.language_model.{inner}")


def _text_config(model_folder: Path) -> dict[str, Any]:
    path = model_folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return {**config, **(config.get("text_config") or {})}
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; complete the folder") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not the configuration of a model: {error}") from error


def _files_by_name(model_folder: Path) -> dict[str, Path]:
    """The file of each tensor: from the index where there is one, else from the headers."""
    index = model_folder / _INDEX
    try:
        if index.is_file():
            weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return {name: model_folder / file for name, file in weight_map.items()}
        files: dict[str, Path] = {}
        for path in sorted(model_folder.glob("*.safetensors")):
            with safe_open(path, framework="pt") as shard:
                files |= dict.fromkeys(shard.keys(), path)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise InputError(f"cannot read the weights' names in {model_folder}: {error}") from error
    if not files:
        raise InputError(f"no *.safetensors in {model_folder}; complete or convert the checkpoint")
    return files


def _read(files: dict[str, Path], names: tuple[str, ...], model_folder: Path) -> torch.Tensor:
    """The tensor that goes by one of `names`."""
    name = next((name for name in names if name in files), None)
    if name is None:
        raise InputError(
            f"{model_folder} has none of {', '.join(names)}; is it a decoder's checkpoint?"
        )
    try:
        with safe_open(files[name], framework="pt") as shard:
            return shard.get_tensor(name)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read {name} in {files[name]}: {error}") from error
