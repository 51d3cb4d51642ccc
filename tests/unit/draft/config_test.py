"""The draft's shape from a target's configuration."""

import json
from pathlib import Path
from typing import Any

import pytest

from eagle3.draft.config import DraftConfig, draft_config_for
from eagle3.errors import InputError

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_theta": 500000.0,
}
# As Kimi-K2.5 has it, with smaller numbers.
KIMI = {
    "model_type": "kimi_k25",
    "text_config": {
        "model_type": "kimi_k2",
        "hidden_size": 896,
        "intermediate_size": 2304,
        "moe_intermediate_size": 256,
        "kv_lora_rank": 64,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "vocab_size": 1000,
        "max_position_embeddings": 262144,
        "rope_theta": 50000.0,
        "rope_scaling": {
            "type": "yarn",
            "factor": 64.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    },
}


def config_for(folder: Path, target: dict[str, Any], **overrides: Any) -> DraftConfig:
    (folder / "config.json").write_text(json.dumps(target))
    arguments: dict[str, Any] = {"draft_vocab_size": 40, "capture_points": (2, 4, 5), **overrides}
    return draft_config_for(folder, **arguments)


def test_a_llama_target(tmp_path: Path) -> None:
    assert config_for(tmp_path, LLAMA) == DraftConfig(
        vocab_size=100,
        draft_vocab_size=40,
        hidden_size=64,
        intermediate_size=96,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        capture_points=(2, 4, 5),
        rms_norm_eps=1e-6,
        rope_theta=500000.0,
    )


def test_a_kimi_target_gets_heads_of_its_own(tmp_path: Path) -> None:
    config = config_for(tmp_path, KIMI)
    heads = (config.num_attention_heads, config.num_key_value_heads, config.head_dim)
    assert heads == (7, 1, 128)
    assert config.intermediate_size == 2304
    assert config.rope_scaling == {
        "rope_type": "yarn",
        "factor": 64.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
    }


def test_the_rope_parameters_of_transformers_5(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 1e6,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    target = {**LLAMA, "rope_parameters": scaling}
    del target["rope_theta"]
    config = config_for(tmp_path, target)
    assert config.rope_theta == 1e6
    assert config.rope_scaling == {k: v for k, v in scaling.items() if k != "rope_theta"}


def test_what_the_user_says_wins(tmp_path: Path) -> None:
    config = config_for(tmp_path, LLAMA, intermediate_size=32, norm_before_residual=True)
    assert (config.intermediate_size, config.norm_before_residual) == (32, True)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"draft_vocab_size": 101}, "draft vocabulary of 101"),
        ({"capture_points": (1, 2)}, "3 capture points, not 2"),
        ({"num_key_value_heads": 3}, "cannot share 3"),
        ({"head_dim": 15}, "even head_dim"),
    ],
)
def test_parts_that_do_not_fit(tmp_path: Path, overrides: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        config_for(tmp_path, LLAMA, **overrides)


def test_a_folder_without_a_decoder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        draft_config_for(tmp_path, 40, (2, 4, 5))
    with pytest.raises(InputError, match="does not describe a decoder"):
        config_for(tmp_path, {"model_type": "llama", "vocab_size": 100})
