"""Small checkpoints of the target families, made on the spot from fixed seeds.

Every norm has random weights, so that a state taken on the wrong side of a norm shows. A router
reads dimensions of the residual stream that only the embedding writes, where the experts' scores
lie far apart: no rounding makes a token change its expert, and the states of mixture-of-experts
models compare like any other.
"""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

NUM_LAYERS = 8
HIDDEN_SIZE = 256
VOCAB_SIZE = 2048
NUM_EXPERTS = 8
MAX_POSITIONS = 4096

_COMMON = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 512,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": MAX_POSITIONS,
    "initializer_range": 0.06,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
_GROUPED = {"num_key_value_heads": 2, "head_dim": 64}


def make_llama(folder: Path) -> Path:
    return _save(lambda: LlamaForCausalLM(LlamaConfig(**_COMMON, **_GROUPED)), folder)


def make_qwen3(folder: Path) -> Path:
    return _save(lambda: Qwen3ForCausalLM(Qwen3Config(**_COMMON, **_GROUPED)), folder)


def make_qwen3_moe(folder: Path) -> Path:
    config = Qwen3MoeConfig(
        **_COMMON,
        **_GROUPED,
        num_experts=NUM_EXPERTS,
        num_experts_per_tok=2,
        moe_intermediate_size=128,
        norm_topk_prob=True,
    )
    return _save(lambda: Qwen3MoeForCausalLM(config), folder)


def make_deepseek_v3(folder: Path, **dimensions: int) -> Path:
    """A DeepSeek-V3; `dimensions` replace those of its config."""
    _save(lambda: DeepseekV3ForCausalLM(_deepseek_v3_config(**dimensions)), folder)
    _complete_deepseek_config(folder / "config.json")
    return folder


def make_kimi_k25(folder: Path, **dimensions: int) -> Path:
    """A DeepSeek-V3 language model inside Kimi-K2.5's wrapper.

    The vision tower is left out: vLLM does not build it for a text model. What a multimodal model
    must bring along for its images is code of its own, as in the real checkpoint.
    """
    make_deepseek_v3(folder, **dimensions)
    weights = load_file(folder / "model.safetensors")
    save_file(
        {f"language_model.{name}": weight for name, weight in weights.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    text_config = json.loads((folder / "config.json").read_text())
    config = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "dtype": "bfloat16",
        "text_config": text_config,
        "vision_config": {"num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 2},
        "media_placeholder_token_id": VOCAB_SIZE - 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "image_processing_tiny.py").write_text(_IMAGE_PROCESSOR)
    auto_map = {"AutoImageProcessor": "image_processing_tiny.TinyImageProcessor"}
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "TinyImageProcessor", "auto_map": auto_map})
    )
    return folder


_IMAGE_PROCESSOR = '''"""Stands where the real checkpoint has its image processor."""

from transformers import BaseImageProcessor


class TinyImageProcessor(BaseImageProcessor):
    def media_tokens_calculator(self, media):
        raise NotImplementedError
'''


def _deepseek_v3_config(**dimensions: int) -> DeepseekV3Config:
    attention = {
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "q_lora_rank": 128,
        "kv_lora_rank": 64,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32,
        "v_head_dim": 64,
    }
    return DeepseekV3Config(
        **(_COMMON | attention | dimensions),
        n_routed_experts=NUM_EXPERTS,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        moe_intermediate_size=128,
        first_k_dense_replace=1,
        n_shared_experts=1,
        routed_scaling_factor=2.5,
        norm_topk_prob=True,
        rope_scaling=None,
    )


def _complete_deepseek_config(path: Path) -> None:
    # transformers knows one way to route; vLLM wants it named, as real checkpoints do.
    config = json.loads(path.read_text())
    config |= {"topk_method": "noaux_tc", "scoring_func": "sigmoid", "num_nextn_predict_layers": 0}
    path.write_text(json.dumps(config))


def _save(build: Callable[[], PreTrainedModel], folder: Path) -> Path:
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    model = build()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(0.01 * torch.randn_like(buffer))
        if hasattr(model.config, "num_experts_per_tok"):
            _separate_routes(model)
    module: torch.nn.Module = model  # transformers' own `to` is untyped
    module.to(torch.bfloat16)
    model.save_pretrained(folder)
    _make_tokenizer().save_pretrained(folder)
    return folder


def _separate_routes(model: PreTrainedModel) -> None:
    """Lets the first NUM_EXPERTS dimensions carry a token's order of the experts to each router.

    Every token gets one random order. Nothing else writes these dimensions, and each router reads
    only them.
    """
    routes = slice(0, NUM_EXPERTS)
    scores = torch.linspace(-1.5, 1.5, NUM_EXPERTS)
    embeddings = model.get_input_embeddings()
    assert isinstance(embeddings, torch.nn.Embedding)
    for token_weight in embeddings.weight:
        token_weight[routes] = scores[torch.randperm(NUM_EXPERTS)]
    for name, parameter in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            parameter[routes] = 0
        elif name.endswith("post_attention_layernorm.weight"):
            parameter[routes] = 1
        elif name.endswith("mlp.gate.weight"):
            parameter.zero_()
            parameter[:, routes] = torch.eye(NUM_EXPERTS)


def _make_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {f"t{token}": token for token in range(VOCAB_SIZE)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="t3"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="t0", eos_token="t1", pad_token="t2", unk_token="t3"
    )
