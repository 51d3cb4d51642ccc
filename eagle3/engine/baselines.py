"""The other roads that a benchmark compares with.

vLLM's plain prefill, which keeps no states, and the patched generator of speculators, which hands
them over through the executor's queue.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from eagle3.engine.architecture import TargetArchitecture, read_architecture
from eagle3.engine.capture_points import after_layer_ids
from eagle3.engine.configuration import (
    CPU_BLOCK_SIZE,
    cache_blocks,
    custom_ops,
    most_prompts_per_step,
    vllm_max_model_len,
)
from eagle3.engine.environment import runs_on_cpu
from eagle3.engine.options import EngineOptions
from eagle3.engine.surroundings import make_folder, surroundings

Prompts = Sequence[Sequence[int]]


@contextmanager
def plain_prefill(options: EngineOptions) -> Iterator[Callable[[Prompts], None]]:
    """vLLM's own `LLM.generate` of one token a prompt, with the step size of `options`."""
    architecture = read_architecture(options.model)
    with _surroundings(options, architecture):
        from vllm.entrypoints.llm import LLM
        from vllm.sampling_params import SamplingParams

        target = LLM(
            model=str(options.model),
            tensor_parallel_size=options.tensor_parallel,
            max_model_len=vllm_max_model_len(options),
            max_num_batched_tokens=options.max_tokens_per_step,
            max_num_seqs=most_prompts_per_step(options),
            gpu_memory_utilization=options.gpu_memory_utilization,
            enable_prefix_caching=False,
            enforce_eager=True,
            load_format=_load_format(options),
            compilation_config={"custom_ops": custom_ops(architecture)},
            **_model_options(options, architecture),
            **_cache_options(options),
        )
        sampling = SamplingParams(max_tokens=1, temperature=0.0, detokenize=False)

        def run(prompts: Prompts) -> None:
            inputs = [{"prompt_token_ids": list(prompt_T)} for prompt_T in prompts]
            target.generate(inputs, sampling, use_tqdm=False)

        try:
            yield run
        finally:
            # Left to the garbage collector, its process would outlive this one, and hold the GPU.
            target.llm_engine.engine_core.shutdown()


@contextmanager
def patched_generator(options: EngineOptions) -> Iterator[Callable[[Prompts, Path], None]]:
    """speculators' generator, with one file a sample saved to a folder, as its scripts do."""
    architecture = read_architecture(options.model)
    with _surroundings(options, architecture):
        from speculators.data_generation import VllmHiddenStatesGenerator

        generator = VllmHiddenStatesGenerator(
            str(options.model),
            after_layer_ids(options.capture_points),
            max_model_len=vllm_max_model_len(options),
            tensor_parallel_size=options.tensor_parallel,
            gpu_memory_utilization=options.gpu_memory_utilization,
            max_num_batched_tokens=options.max_tokens_per_step,
            model_options=_model_options(options, architecture),
            cache_options=_cache_options(options),
            load_options={"load_format": _load_format(options)},
            compilation_options={"custom_ops": custom_ops(architecture)},
        )

        def run(prompts: Prompts, folder: Path) -> None:
            batch: list[list[int]] = []
            saved = 0
            for number, prompt_T in enumerate(prompts, start=1):
                batch.append(list(prompt_T))
                tokens = sum(map(len, batch))
                if tokens + len(prompt_T) > options.max_tokens_per_step or number == len(prompts):
                    for result in generator.generate(batch):
                        torch.save(result, folder / f"data_{saved}.pt")
                        saved += 1
                    batch = []

        try:
            yield run
        finally:
            generator.shutdown()


@contextmanager
def _surroundings(options: EngineOptions, architecture: TargetArchitecture) -> Iterator[None]:
    folder = make_folder()
    try:
        with surroundings(options, architecture, folder):
            yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _load_format(options: EngineOptions) -> str:
    return "dummy" if options.dummy_weights else "auto"


def _model_options(options: EngineOptions, architecture: TargetArchitecture) -> dict[str, Any]:
    modality = architecture.modality
    return {
        "seed": options.seed,
        "trust_remote_code": options.trust_remote_code,
        "dtype": "bfloat16",
        "skip_tokenizer_init": modality is None,
        "limit_mm_per_prompt": {} if modality is None else {modality: 0},
    }


def _cache_options(options: EngineOptions) -> dict[str, Any]:
    """On a CPU vLLM would take half of its memory; the engine's own number of blocks is enough."""
    if not runs_on_cpu():
        return {}
    blocks = cache_blocks(options, CPU_BLOCK_SIZE)
    return {"block_size": CPU_BLOCK_SIZE, "num_gpu_blocks_override": blocks}
