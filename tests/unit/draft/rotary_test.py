"""Rotary embedding as vLLM serves it and as transformers loads it."""

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.rotary_embedding import get_rope

from eagle3.draft.rotary import Rotary, rotate

HEAD_DIM, THETA, POSITIONS = 64, 50000.0, 4096
SCALINGS = [
    None,
    {"rope_type": "linear", "factor": 4.0},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1024,
    },
    {
        "rope_type": "yarn",
        "factor": 16.0,
        "original_max_position_embeddings": 256,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
    },
    {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 256},
]
SOME = torch.tensor([0, 1, 255, 1000, POSITIONS - 1])


def tables(scaling: dict[str, Any] | None) -> tuple[torch.Tensor, torch.Tensor]:
    cos_T1D, sin_T1D = Rotary(HEAD_DIM, THETA, scaling)(SOME)
    return cos_T1D[:, 0], sin_T1D[:, 0]


@pytest.mark.parametrize("scaling", SCALINGS)
def test_equals_transformers(scaling: dict[str, Any] | None) -> None:
    config = LlamaConfig(
        head_dim=HEAD_DIM,
        rope_theta=THETA,
        rope_scaling=scaling,
        max_position_embeddings=POSITIONS,
    )
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), SOME[None])
    for mine, theirs in zip(tables(scaling), (cos[0], sin[0]), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=5e-4)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_equals_vllm(scaling: dict[str, Any] | None) -> None:
    parameters = {"rope_theta": THETA, "rope_type": "default", **(scaling or {})}
    with set_current_vllm_config(VllmConfig()):
        rope = get_rope(HEAD_DIM, POSITIONS, rope_parameters=parameters, dtype=torch.float32)
    cos_TF, sin_TF = rope.cos_sin_cache[SOME].chunk(2, dim=-1)
    for mine, theirs in zip(tables(scaling), (cos_TF, sin_TF), strict=True):
        torch.testing.assert_close(mine, theirs.repeat(1, 2), rtol=0, atol=5e-4)


def test_a_product_depends_on_the_distance_only() -> None:
    q_TND, k_TND = torch.randn(2, 1, 1, HEAD_DIM)
    rotary = Rotary(HEAD_DIM, THETA, None)

    def product(query: int, key: int) -> torch.Tensor:
        turned = (
            rotate(x, *rotary(torch.tensor([position])))
            for x, position in ((q_TND, query), (k_TND, key))
        )
        return torch.mul(*turned).sum()

    torch.testing.assert_close(product(7, 3), product(107, 103), rtol=1e-4, atol=1e-4)


def test_positions_stay_exact_in_a_draft_that_was_cast() -> None:
    cast = Rotary(HEAD_DIM, THETA, None).to(torch.bfloat16)
    assert not torch.equal(cast(torch.tensor([1001]))[0], cast(torch.tensor([1002]))[0])
