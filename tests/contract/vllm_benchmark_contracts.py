"""What the benchmark of extraction relies on in vLLM; compared with 0.16.0."""

from tests.contract.contract import Contract
from tests.contract.expectations import Call, Has
from tests.contract.relying import BASELINES, SERVING

BENCHMARK = (
    Contract(
        "vllm.entrypoints.llm:LLM",
        Call(
            "model=",
            "skip_tokenizer_init=",
            "tensor_parallel_size=",
            "gpu_memory_utilization=",
            "enforce_eager=",
            "compilation_config=",
            "seed=",
            "trust_remote_code=",
            "dtype=",
        ),
        (BASELINES, SERVING),
        "plain prefill is measured by this, and a target with a draft runs by it",
    ),
    Contract(
        "vllm.entrypoints.llm:LLM.generate",
        Call("prompts", "sampling_params", "use_tqdm="),
        (BASELINES, SERVING),
        "plain prefill is measured by this, and a target with a draft runs by it",
    ),
    Contract(
        "vllm.v1.engine.core_client:MPClient.shutdown",
        Call(),
        (BASELINES,),
        "the process of plain prefill is stopped by target.llm_engine.engine_core.shutdown()",
    ),
    Contract(
        "vllm.entrypoints.llm:LLM",
        Has("llm_engine"),
        (BASELINES,),
        "the process of plain prefill is stopped by target.llm_engine.engine_core.shutdown()",
    ),
    Contract(
        "vllm.v1.engine.llm_engine:LLMEngine",
        Has("engine_core"),
        (BASELINES,),
        "the process of plain prefill is stopped by target.llm_engine.engine_core.shutdown()",
    ),
    Contract(
        "vllm.engine.arg_utils:EngineArgs",
        Has(
            "max_model_len",
            "max_num_batched_tokens",
            "max_num_seqs",
            "enable_prefix_caching",
            "load_format",
            "limit_mm_per_prompt",
            "block_size",
            "num_gpu_blocks_override",
        ),
        (BASELINES,),
        "what LLM hands on, so that both roads take equal steps",
    ),
)
