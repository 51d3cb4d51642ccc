"""The config.json of an exported draft, and back.

The form is that of speculators 0.3.0 (`Eagle3SpeculatorConfig`), which vLLM 0.16.0 reads through
`transformers_utils/configs/speculators`. Every key is written out: where one is absent, the two
libraries assume different things, and vLLM knows nothing of LlamaConfig's defaults.
"""

import json
from pathlib import Path
from typing import Any

from eagle3.draft.config import DraftConfig
from eagle3.draft.provenance import target_digests
from eagle3.errors import InputError
from eagle3.store.manifest import TargetIdentity
from eagle3.target import find_target

CONFIG = "config.json"
DTYPE = "bfloat16"
DEFAULT_SPECULATIVE_TOKENS = 5

# vLLM 0.16.0 (config/speculative.py, with patch 03 of third_party/vllm) refuses drafts for targets
# whose model type holds none of these.
SERVED_FAMILIES = (
    "llama",
    "qwen",
    "minicpm",
    "gpt_oss",
    "hunyuan_vl",
    "hunyuan_v1_dense",
    "afmoe",
    "deepseek_v2",
    "deepseek_v3",
    "kimi_k2",
)
# vLLM hands out the state after the last layer for these alone (third_party/vllm, patches 01, 05).
_STATE_AFTER_LAST_LAYER = ("llama", "deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25")
# Rotary scalings whose tables are the same in vLLM and transformers for the same parameters.
_ROPE_TYPES = ("default", "linear", "llama3", "yarn")
# transformers' YaRN reads these and vLLM's, for a Llama, does not.
_YARN_ONLY_IN_TRANSFORMERS = ("mscale", "mscale_all_dim", "attention_factor")


def serves_drafts_for(model_type: str) -> bool:
    """Whether vLLM serves drafts for targets whose decoder is of this type."""
    return any(family in model_type for family in SERVED_FAMILIES)


def config_json(config: DraftConfig, target: Path) -> dict[str, Any]:
    """What config.json says of a draft for the checkpoint in the folder `target`.

    Raises InputError for a draft that vLLM could not serve as it was trained.
    """
    target_config = _read_json(target / CONFIG)
    _check_served(config, target_config)
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": "0.3.0",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {"proposal_type": "greedy", "speculative_tokens": DEFAULT_SPECULATIVE_TOKENS}
            ],
            "verifier": {
                "name_or_path": str(target),
                "architectures": target_config.get("architectures", []),
            },
        },
        "draft_vocab_size": config.draft_vocab_size,
        "target_hidden_size": config.target_hidden_size,
        "norm_before_residual": config.norm_before_residual,
        "eagle_aux_hidden_state_layer_ids": list(config.capture_points),
        "tie_word_embeddings": False,
        "dtype": DTYPE,
        "torch_dtype": DTYPE,
        "transformer_layer_config": _layer_config(config),
    }


def _layer_config(config: DraftConfig) -> dict[str, Any]:
    scaling = config.rope_scaling
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": config.rms_norm_eps,
        "max_position_embeddings": config.max_position_embeddings,
        # transformers 4 reads the first two, transformers 5 the third.
        "rope_theta": config.rope_theta,
        "rope_scaling": scaling,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta}
        | (scaling or {}),
        "tie_word_embeddings": False,
        "use_cache": True,
        "dtype": DTYPE,
        "torch_dtype": DTYPE,
    }


def read_config(folder: Path) -> DraftConfig:
    """The configuration of the draft exported to `folder`; InputError where it is none."""
    path = folder / CONFIG
    if not path.exists():
        raise InputError(f"no draft in {folder}; train one, or give the folder of an exported one")
    exported = _read_json(path)
    if exported.get("speculators_model_type") != "eagle3":
        raise InputError(f"{path} is not of an exported EAGLE-3 draft")
    try:
        layer = exported["transformer_layer_config"]
        return DraftConfig(
            vocab_size=layer["vocab_size"],
            draft_vocab_size=exported["draft_vocab_size"],
            hidden_size=layer["hidden_size"],
            intermediate_size=layer["intermediate_size"],
            num_attention_heads=layer["num_attention_heads"],
            num_key_value_heads=layer["num_key_value_heads"],
            head_dim=layer["head_dim"],
            rms_norm_eps=layer["rms_norm_eps"],
            rope_theta=layer["rope_theta"],
            rope_scaling=layer["rope_scaling"],
            max_position_embeddings=layer["max_position_embeddings"],
            capture_points=tuple(exported["eagle_aux_hidden_state_layer_ids"]),
            norm_before_residual=exported["norm_before_residual"],
        )
    except KeyError as error:
        raise InputError(f"{path} says nothing of {error}: export the draft again") from error
    except TypeError as error:
        raise InputError(f"{path} is damaged ({error}): export the draft again") from error


def target_of(folder: Path) -> Path:
    """The folder of the target that the draft in `folder` was made for.

    A shipped model is found again wherever the draft was trained. Raises InputError where the
    draft names none, or the folder is gone.
    """
    path = folder / CONFIG
    try:
        named = Path(_read_json(path)["speculators_config"]["verifier"]["name_or_path"])
    except (KeyError, TypeError) as error:
        raise InputError(f"{path} names no target; give its folder with --model") from error
    target = find_target(TargetIdentity(str(named), *target_digests(folder)))
    if target is None:
        raise InputError(f"the draft's target {named} is gone; give its folder with --model")
    return target


def _read_json(path: Path) -> dict[str, Any]:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; complete the folder") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}; complete the folder") from error
    if not isinstance(fields, dict):
        raise InputError(f"{path} is not the configuration of a model; complete the folder")
    return fields


def _check_served(config: DraftConfig, target_config: dict[str, Any]) -> None:
    """Raises InputError for what vLLM 0.16.0 would refuse, or serve otherwise than trained."""
    points = tuple(config.capture_points)
    decoder = {**target_config, **(target_config.get("text_config") or {})}
    family = str(decoder.get("model_type"))
    if not serves_drafts_for(family):
        raise InputError(
            f"vLLM serves EAGLE-3 drafts for {', '.join(SERVED_FAMILIES)}, not for a {family}: "
            "take another target, or add its family as patches 01 to 03 of third_party/vllm do"
        )
    num_layers = decoder["num_hidden_layers"]
    if len(points) != 3 or tuple(sorted(set(points))) != points:
        # vllm/model_executor/models/llama.py hands the states over in the order of the layers.
        raise InputError(
            f"vLLM serves three ascending capture points, not {points}: extract with other --layers"
        )
    if points[0] < 1 or points[-1] > num_layers:
        raise InputError(
            f"vLLM serves capture points 1 to {num_layers} of this target, not {points}: extract "
            "with other --layers"
        )
    model_type = target_config.get("model_type", "")
    if points[-1] == num_layers and model_type not in _STATE_AFTER_LAST_LAYER:
        raise InputError(
            f"vLLM does not hand out the state after the last layer of a {model_type}: train on "
            f"points below {num_layers}"
        )
    scaling = config.rope_scaling or {}
    rope_type = scaling.get("rope_type", "default")
    unread = [name for name in _YARN_ONLY_IN_TRANSFORMERS if name in scaling]
    if rope_type not in _ROPE_TYPES or unread:
        raise InputError(
            f"vLLM would turn positions otherwise than in training: rope_scaling {scaling} "
            f"{'holds ' + ', '.join(unread) if unread else 'is of an unknown rope_type'}"
        )
