"""An exported draft is the same model in vLLM's class, in speculators' and in ours."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from eagle3.draft.export import WEIGHTS
from tests.integration.drafts import POINTS, exported
from tests.integration.served_draft import (
    logits_of_speculators,
    logits_of_vllm,
    our_logits,
    vllm_config,
    vllm_draft,
)
from tests.integration.tiny_models import (
    VOCAB_SIZE,
    make_deepseek_v3,
    make_kimi_k25,
    make_llama,
    make_qwen3,
)

ROPES: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    },
    "yarn": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512},
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("target") / "model")


@pytest.fixture(scope="module")
def rendezvous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks") / "rendezvous"


def rows(hidden_size: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens, states of three points and positions far apart, where rotary tables differ most."""
    generator = torch.Generator().manual_seed(2)
    input_ids_T = torch.randint(VOCAB_SIZE, (40,), generator=generator)
    fused_T3H = torch.randn(40, 3, hidden_size, generator=generator).to(dtype)
    return input_ids_T, fused_T3H, torch.arange(40) * 97


def test_vllm_loads_every_weight(target: Path, tmp_path: Path, rendezvous: Path) -> None:
    folder = exported(target, tmp_path / "draft")
    ours = load_file(folder / WEIGHTS)
    theirs = dict(vllm_draft(folder, target, rendezvous, "bfloat16").named_parameters())
    fused = {
        "layers.0.self_attn.qkv_proj.weight": [
            f"layers.0.self_attn.{name}_proj.weight" for name in "qkv"
        ],
        "layers.0.mlp.gate_up_proj.weight": [
            f"layers.0.mlp.{name}_proj.weight" for name in ("gate", "up")
        ],
    }
    del ours["t2d"]
    expected = {
        "draft_id_to_target_id": ours.pop("d2t"),
        "lm_head.weight": ours.pop("lm_head.weight"),
    }
    for name, parts in fused.items():
        expected[f"model.{name}"] = torch.cat([ours.pop(part) for part in parts])
    expected |= {f"model.{name}": weight for name, weight in ours.items()}
    assert theirs.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(theirs[name][: len(weight)], weight), name


@pytest.mark.parametrize("norm_before_residual", [False, True])
@pytest.mark.parametrize("rope", ROPES)
def test_vllm_computes_the_same(
    rope: str, norm_before_residual: bool, target: Path, tmp_path: Path, rendezvous: Path
) -> None:
    folder = exported(
        target,
        tmp_path / "draft",
        rope_scaling=ROPES[rope],
        norm_before_residual=norm_before_residual,
    )
    inputs = rows(256, torch.float32)
    theirs_TV, their_states_TH = logits_of_vllm(vllm_draft(folder, target, rendezvous), *inputs)
    ours_TV, our_states_TH = our_logits(folder, *inputs)
    torch.testing.assert_close(ours_TV, theirs_TV, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(our_states_TH, their_states_TH, rtol=1e-4, atol=1e-4)


def test_vllm_computes_the_same_in_bfloat16(target: Path, tmp_path: Path, rendezvous: Path) -> None:
    folder = exported(target, tmp_path / "draft")
    inputs = rows(256, torch.bfloat16)
    model = vllm_draft(folder, target, rendezvous, "bfloat16")
    theirs_TV, _ = logits_of_vllm(model, *inputs)
    ours_TV, _ = our_logits(folder, *inputs)
    known = theirs_TV.isfinite()
    assert torch.equal(known, ours_TV.isfinite())
    ours, theirs = ours_TV[known].float(), theirs_TV[known].float()
    assert torch.nn.functional.cosine_similarity(ours, theirs, dim=0) > 0.9995


@pytest.mark.parametrize("norm_before_residual", [False, True])
def test_speculators_computes_the_same(
    norm_before_residual: bool, target: Path, tmp_path: Path
) -> None:
    folder = exported(target, tmp_path / "draft", norm_before_residual=norm_before_residual)
    input_ids_T, fused_T3H, position_T = rows(256, torch.float32)
    theirs_TD = logits_of_speculators(folder, input_ids_T, fused_T3H, position_T)
    ours_TV, _ = our_logits(folder, input_ids_T, fused_T3H, position_T)
    ours_TD = ours_TV[:, ours_TV[0].isfinite()]
    torch.testing.assert_close(ours_TD, theirs_TD, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make_model", [make_llama, make_qwen3, make_deepseek_v3])
def test_vllm_serves_the_captured_points(
    make_model: Callable[[Path], Path], tmp_path: Path
) -> None:
    target = make_model(tmp_path / "model")
    folder = exported(target, tmp_path / "draft")
    draft = vllm_config(folder, target).speculative_config.draft_model_config.hf_config
    assert draft.eagle_aux_hidden_state_layer_ids == list(POINTS)
    assert draft.norm_before_residual is False


def test_vllm_serves_kimi(tmp_path: Path) -> None:
    target = make_kimi_k25(tmp_path / "model")
    folder = exported(target, tmp_path / "draft", capture_points=(2, 4, 8))
    config = vllm_config(folder, target, trust_remote_code=True)
    draft = config.speculative_config.draft_model_config.hf_config
    assert draft.eagle_aux_hidden_state_layer_ids == [2, 4, 8]
