"""vLLM's configuration of a target that is only ever prefilled."""

from typing import TYPE_CHECKING

from eagle3.engine.architecture import TargetArchitecture
from eagle3.engine.environment import runs_on_cpu

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from eagle3.engine.options import EngineOptions

# Prompts in one step; vLLM's own default for prefill at full speed.
MOST_PROMPTS_PER_STEP = 256
# Tokens of one block of the KV cache on the CPU, where vLLM's attention wants a multiple of 32.
CPU_BLOCK_SIZE = 128


def configure(options: "EngineOptions", architecture: TargetArchitecture) -> "VllmConfig":
    """The configuration; raises ValueError for what vLLM refuses."""
    from vllm.config import (
        CacheConfig,
        CompilationConfig,
        DeviceConfig,
        LoadConfig,
        ModelConfig,
        ParallelConfig,
        SchedulerConfig,
        VllmConfig,
    )

    cache = CacheConfig(
        gpu_memory_utilization=options.gpu_memory_utilization,
        # A cached prefix is not run again, so it would not be captured.
        enable_prefix_caching=False,
    )
    if runs_on_cpu():
        cache.block_size = CPU_BLOCK_SIZE
    config = VllmConfig(
        model_config=ModelConfig(
            model=str(options.model),
            tokenizer=str(options.model),
            # Without one, vLLM would not take a multimodal target.
            skip_tokenizer_init=architecture.modality is None,
            trust_remote_code=options.trust_remote_code,
            # Stored states are bfloat16, and float16 changes the residual stream of DeepSeek.
            dtype=options.compute_dtype,
            seed=options.seed,
            max_model_len=vllm_max_model_len(options),
            # Hooks need the layers to run as they stand.
            enforce_eager=True,
            limit_mm_per_prompt={} if architecture.modality is None else {architecture.modality: 0},
        ),
        cache_config=cache,
        parallel_config=ParallelConfig(
            tensor_parallel_size=options.tensor_parallel,
            distributed_executor_backend="mp",
            worker_extension_cls="eagle3.engine.capture_worker.CaptureWorker",
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=most_prompts_per_step(options),
            max_model_len=vllm_max_model_len(options),
            max_num_batched_tokens=options.max_tokens_per_step,
            is_encoder_decoder=False,
            enable_chunked_prefill=True,
            # Layers with and without a sliding window then share one kind of block.
            disable_hybrid_kv_cache_manager=True,
            # Where steps are queued on a GPU, vLLM then guards the buffers it prepares them in.
            async_scheduling=True,
        ),
        device_config=DeviceConfig(),
        load_config=LoadConfig(load_format="dummy" if options.dummy_weights else "auto"),
        compilation_config=CompilationConfig(custom_ops=custom_ops(architecture)),
    )
    # On a GPU, vLLM has chosen the block size by now.
    cache.num_gpu_blocks_override = cache_blocks(options, cache.block_size)
    return config


def vllm_max_model_len(options: "EngineOptions") -> int:
    """vLLM keeps room for one token after the longest prompt."""
    return options.max_model_len + 1


def most_prompts_per_step(options: "EngineOptions") -> int:
    return min(MOST_PROMPTS_PER_STEP, options.max_tokens_per_step)


def cache_blocks(options: "EngineOptions", block_size: int) -> int:
    """Blocks of KV cache for the prompts of a step; no prompt keeps any after its last row.

    One prompt at most is unfinished when a step begins, each prompt may leave a block partly
    empty, and one block is vLLM's own.
    """
    tokens = options.max_tokens_per_step + options.max_model_len
    return -(-tokens // block_size) + most_prompts_per_step(options) + 1


def custom_ops(architecture: TargetArchitecture) -> list[str]:
    """vLLM 0.16.0's CPU rotary kernel is wrong for the 3-D queries of latent attention."""
    if runs_on_cpu() and architecture.latent_attention:
        return ["all", "-rotary_embedding"]
    return []
