"""An exported draft in the classes of vLLM and of speculators, in this process, on the CPU."""

import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from eagle3.draft.export import WEIGHTS, load_draft
from eagle3.engine.model_classes import look_at_models_here

# Read when torch._dynamo and vLLM are imported, which the functions below are the first to do.
os.environ.update(
    {
        "HF_HUB_OFFLINE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "USER": str(os.getuid()),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_MLA_DISABLE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
)


def vllm_config(draft: Path, target: Path, dtype: Any = "float32", **options: Any) -> Any:
    """The configuration of vLLM that serves `draft` with `target`; ValueError where it refuses."""
    from vllm.config import (
        CacheConfig,
        DeviceConfig,
        ModelConfig,
        ParallelConfig,
        SpeculativeConfig,
        VllmConfig,
    )

    look_at_models_here()
    model = ModelConfig(model=str(target), dtype=dtype, enforce_eager=True, **options)
    parallel = ParallelConfig()
    return VllmConfig(
        model_config=model,
        parallel_config=parallel,
        device_config=DeviceConfig("cpu"),
        cache_config=CacheConfig(block_size=32),
        speculative_config=SpeculativeConfig(
            model=str(draft),
            method="eagle3",
            num_speculative_tokens=3,
            target_model_config=model,
            target_parallel_config=parallel,
        ),
    )


def vllm_draft(draft: Path, target: Path, rendezvous: Path, dtype: str = "float32") -> Any:
    """vLLM's own draft class with the weights that its own loader read.

    Its attention is plain: the kernel and the paged cache behind it are not in question here.
    """
    from vllm.config import set_current_vllm_config
    from vllm.distributed import (
        init_distributed_environment,
        initialize_model_parallel,
        model_parallel_is_initialized,
    )
    from vllm.model_executor.model_loader import get_model

    config = vllm_config(draft, target, dtype)
    with set_current_vllm_config(config):
        if not model_parallel_is_initialized():
            init_distributed_environment(1, 0, f"file://{rendezvous}", 0, "gloo")
            initialize_model_parallel(1)
        model: Any = get_model(
            vllm_config=config,
            model_config=config.speculative_config.draft_model_config,
            prefix="draft",
        )
    attention = model.model.layers[0].self_attn
    attention.attn = _CausalAttention(attention.head_dim)
    return model.eval()


class _CausalAttention(torch.nn.Module):
    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        heads = [x.unflatten(1, (-1, self.head_dim)) for x in (q, k, v)]
        return causal(*heads).flatten(1)


def causal(q_TND: torch.Tensor, k_TGD: torch.Tensor, v_TGD: torch.Tensor) -> torch.Tensor:
    """Attention of each row to itself and the rows before it; N heads share G."""
    q_NTD, k_GTD, v_GTD = (x.transpose(0, 1) for x in (q_TND, k_TGD, v_TGD))
    outputs_NTD = torch.nn.functional.scaled_dot_product_attention(
        q_NTD, k_GTD, v_GTD, is_causal=True, enable_gqa=True
    )
    return outputs_NTD.transpose(0, 1)


@torch.no_grad()
def logits_of_vllm(
    model: Any, input_ids_T: torch.Tensor, fused_T3H: torch.Tensor, position_T: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of the target's vocabulary [T, V] and the states for the next step [T, H]."""
    states_TH = model.combine_hidden_states(fused_T3H.flatten(1))
    normed_TH, prenorm_TH = model(input_ids_T, position_T, states_TH)
    return model.compute_logits(normed_TH), prenorm_TH


@torch.no_grad()
def our_logits(
    folder: Path, input_ids_T: torch.Tensor, fused_T3H: torch.Tensor, position_T: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same from the draft as this project loads it, in the dtype of the states."""
    model = load_draft(folder)
    states_TH = model(input_ids_T, model.fuse(fused_T3H), position_T, causal)
    logits_TD = model.logits(states_TH)
    logits_TV = logits_TD.new_full((len(logits_TD), model.config.vocab_size), float("-inf"))
    logits_TV[:, model.target_ids(torch.arange(model.config.draft_vocab_size))] = logits_TD
    return logits_TV, states_TH


@torch.no_grad()
def logits_of_speculators(
    folder: Path, input_ids_T: torch.Tensor, fused_T3H: torch.Tensor, position_T: torch.Tensor
) -> torch.Tensor:
    """Scores of the draft's vocabulary [T, D] from speculators' class, in float32.

    Built and filled by hand: `Eagle3DraftModel.from_pretrained` of 0.3.0 hands its own __init__ an
    argument that it does not take.
    """
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig

    weights = load_file(folder / WEIGHTS)
    config = Eagle3SpeculatorConfig.from_pretrained(folder)
    config.transformer_layer_config._attn_implementation = "simple_flex_attention"
    model = Eagle3DraftModel(config, weights["t2d"], weights["d2t"]).eval()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert (missing, unexpected) == (["verifier_lm_head.weight"], [])
    scores: list[torch.Tensor] = []
    model.lm_head.register_forward_hook(lambda _module, _inputs, output: scores.append(output))
    model(fused_T3H.flatten(1)[None], input_ids_T[None], position_ids=position_T[None], ttt_steps=1)
    return scores[0][0]
