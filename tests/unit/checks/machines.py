"""Machines, and targets by their config.json alone, for checks to look at."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from eagle3.checks.fatbin import GpuCode
from eagle3.checks.machine import Gpu, Machine
from eagle3.checks.situation import Situation
from tests.unit.extraction.requests import make_request

GB = 10**9
LAPTOP = Machine("cpu", cores=2, memory=24 * GB, available=20 * GB)
H200 = Gpu("H200", (9, 0), 150 * GB, 149 * GB)

# As in vLLM 0.16.0's wheel: some files were compiled for 9.0, others only to PTX of CUDA 12.9.
NATIVE = frozenset({GpuCode("sass", (8, 0), (1, 7)), GpuCode("sass", (9, 0), (1, 7))})
COMPILED_LATER = frozenset({GpuCode("sass", (8, 0), (1, 7)), GpuCode("ptx", (8, 0), (8, 8))})
LIBRARIES = (
    ("torch/lib/libtorch_cuda.so", (NATIVE,) * 3),
    ("vllm/_moe_C.abi3.so", (NATIVE, COMPILED_LATER, COMPILED_LATER)),
)


def server(
    *gpus: Gpu,
    driver_cuda: tuple[int, int] = (13, 0),
    libraries: tuple[tuple[str, tuple[frozenset[GpuCode], ...]], ...] = LIBRARIES,
) -> Machine:
    """A machine of the CUDA stack."""
    return Machine("cuda", 64, 1000 * GB, 900 * GB, gpus, "570.86", driver_cuda, libraries)


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 8,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 256,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}
KIMI = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "text_config": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "num_hidden_layers": 61,
        "hidden_size": 7168,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "n_routed_experts": 384,
        "num_experts_per_tok": 8,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "vocab_size": 163840,
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
        },
    },
}


def situation(folder: Path, machine: Machine, config: dict[str, Any], **changes: Any) -> Situation:
    """`config` as a target with a file of two empty weights, on `machine`, with `changes` asked."""
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"lm_head.weight": np.zeros((2, 4), np.float16)}, folder / "model.safetensors")
    return Situation(
        make_request(folder, folder / "data.jsonl", folder / "out", **changes), machine
    )
