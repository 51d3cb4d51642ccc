"""The auxiliary states that vLLM's own models hand to a draft, without a draft.

Serving asks a model for them by `set_aux_hidden_state_layers`; its forward then returns them beside
its output. vLLM's CPU runner refuses speculative decoding, so that a hook takes them away here
before the runner sees them.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from eagle3.engine.architecture import read_architecture

_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "USER": str(os.getuid()),
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # In one process the model is at hand.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_MLA_DISABLE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


def auxiliary_states(
    model: Path, layers: Sequence[int], prompts: Sequence[list[int]]
) -> list[torch.Tensor]:
    """hidden_states_TLH of each prompt, L being vLLM's auxiliary `layers` in ascending order."""
    # A process of its own: one holds one vLLM, and what it sets up stays.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_run, model, tuple(layers), list(prompts)).result()


def _run(model: Path, layers: tuple[int, ...], prompts: list[list[int]]) -> list[torch.Tensor]:
    os.environ.update(_ENVIRONMENT)
    from vllm import LLM, SamplingParams

    llm = LLM(
        str(model),
        dtype="bfloat16",
        enforce_eager=True,
        block_size=128,
        max_model_len=512,
        **_of_the_family(model),
    )
    taken: list[torch.Tensor] = []

    def take(_module: object, _inputs: object, output: Any) -> torch.Tensor:
        hidden_states, states = output
        taken.append(torch.stack(states, dim=1))
        return hidden_states

    def prepare(target: Any) -> None:
        target.set_aux_hidden_state_layers(layers)
        target.register_forward_hook(take)

    llm.apply_model(prepare)
    results = []
    for prompt_T in prompts:
        taken.clear()
        llm.generate(
            {"prompt_token_ids": prompt_T},
            SamplingParams(max_tokens=1, detokenize=False),
            use_tqdm=False,
        )
        results.append(torch.cat(taken)[: len(prompt_T)].clone())
    return results


def _of_the_family(model: Path) -> dict[str, Any]:
    architecture = read_architecture(model)
    options: dict[str, Any] = {}
    if architecture.latent_attention:
        # vLLM 0.16.0's CPU rotary kernel is wrong for the 3-D queries of these models.
        options["compilation_config"] = {"custom_ops": ["all", "-rotary_embedding"]}
    if architecture.modality is not None:
        options |= {"trust_remote_code": True, "limit_mm_per_prompt": {architecture.modality: 0}}
    return options
