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
from eagle3.engine.model_classes import look_at_models_here

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


def states_at_the_draft(
    model: Path, draft: Path, prompts: Sequence[list[int]]
) -> list[torch.Tensor]:
    """What the draft itself is handed of each prompt while it is served, [T, 3, H]; on a GPU."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_serve, model, draft, list(prompts)).result()


def _run(model: Path, layers: tuple[int, ...], prompts: list[list[int]]) -> list[torch.Tensor]:
    llm = _start(model)
    taken: list[torch.Tensor] = []

    def take(_module: object, _inputs: object, output: Any) -> torch.Tensor:
        hidden_states, states = output
        taken.append(torch.stack(states, dim=1))
        return hidden_states

    def prepare(target: Any) -> None:
        target.set_aux_hidden_state_layers(layers)
        target.register_forward_hook(take)

    llm.apply_model(prepare)
    return [_first_taken(llm, prompt_T, taken) for prompt_T in prompts]


def _serve(model: Path, draft: Path, prompts: list[list[int]]) -> list[torch.Tensor]:
    speculative = {"method": "eagle3", "model": str(draft), "num_speculative_tokens": 3}
    llm = _start(model, speculative_config=speculative)
    taken: list[torch.Tensor] = []

    def prepare(worker: Any) -> None:
        served = worker.model_runner.drafter.model
        combine = served.combine_hidden_states

        def take(states: torch.Tensor) -> torch.Tensor:
            taken.append(states.unflatten(1, (3, -1)).cpu())
            return combine(states)

        served.combine_hidden_states = take

    llm.collective_rpc(prepare)
    return [_first_taken(llm, prompt_T, taken) for prompt_T in prompts]


def _start(model: Path, **options: Any) -> Any:
    os.environ.update(_ENVIRONMENT)
    if torch.cuda.is_available():
        os.environ.pop("VLLM_MLA_DISABLE")
    from vllm import LLM

    look_at_models_here()
    return LLM(
        str(model),
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=512,
        gpu_memory_utilization=0.3,
        **_of_the_family(model),
        **options,
    )


def _first_taken(llm: Any, prompt_T: list[int], taken: list[torch.Tensor]) -> torch.Tensor:
    """What is taken in the step that reads the prompt."""
    from vllm import SamplingParams

    taken.clear()
    llm.generate(
        {"prompt_token_ids": prompt_T},
        SamplingParams(max_tokens=1, detokenize=False),
        use_tqdm=False,
    )
    return taken[0][: len(prompt_T)].clone()


def _of_the_family(model: Path) -> dict[str, Any]:
    architecture = read_architecture(model)
    options: dict[str, Any] = {}
    if architecture.latent_attention and not torch.cuda.is_available():
        # vLLM 0.16.0's CPU rotary kernel is wrong for the 3-D queries of these models.
        options["compilation_config"] = {"custom_ops": ["all", "-rotary_embedding"]}
    if architecture.modality is not None:
        options |= {"trust_remote_code": True, "limit_mm_per_prompt": {architecture.modality: 0}}
    return options
