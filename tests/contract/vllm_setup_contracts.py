"""How the target is configured in vLLM, and on what platform; compared with 0.16.0."""

from tests.contract.contract import Contract
from tests.contract.expectations import Call, Default, Does, Has, Typed
from tests.contract.relying import (
    CAPTURE,
    CONFIG,
    CPU_ENVIRONMENT,
    ENGINE,
    ENVIRONMENT,
    GENERATION,
    GENERATOR,
    MODEL_CLASSES,
    P01,
    P02,
    P04,
    P05,
    P06,
    P08,
    P10,
    P13,
    P19,
    P20,
    P23,
    QUIET,
    V06,
    WORKER,
)

CONFIGURATION = (
    Contract(
        "vllm.config:VllmConfig",
        Call(
            "model_config=",
            "cache_config=",
            "parallel_config=",
            "scheduler_config=",
            "device_config=",
            "load_config=",
            "compilation_config=",
        ),
        (CONFIG, GENERATOR, P20),
        "the engine makes its configuration by hand, not from command-line arguments",
    ),
    Contract(
        "vllm.config:ModelConfig",
        Call(
            "model=",
            "tokenizer=",
            "skip_tokenizer_init=",
            "trust_remote_code=",
            "dtype=",
            "max_model_len=",
            "enforce_eager=",
            "seed=",
            "limit_mm_per_prompt=",
        ),
        (CONFIG, GENERATOR, P20),
        "the target is loaded with these options",
    ),
    Contract(
        "vllm.config:ModelConfig",
        Has("dtype", "max_model_len", "hf_text_config"),
        (P13, P19),
        "the number of layers, the type of the states and the longest prompt are read here",
    ),
    Contract(
        "vllm.config:ModelConfig.get_hidden_size",
        Call(),
        (P10, P23),
        "the width of the states",
    ),
    Contract(
        "vllm.config:CacheConfig",
        Call(
            "block_size=",
            "gpu_memory_utilization=",
            "enable_prefix_caching=",
            "num_gpu_blocks_override=",
        ),
        (CONFIG, GENERATOR, P06, P20),
        "prefix caching could no longer be switched off: cached tokens are never captured",
    ),
    Contract(
        "vllm.config:CacheConfig.enable_prefix_caching",
        Default("True"),
        (P06,),
        "the reason to switch it off explicitly",
    ),
    Contract(
        "vllm.config:CacheConfig",
        Has("block_size", "num_gpu_blocks", "num_gpu_blocks_override", "cpu_kvcache_space_bytes"),
        (CONFIG, GENERATOR, P02, P04),
        "the size of the KV cache is written and read here",
    ),
    Contract(
        "vllm.config:ParallelConfig",
        Call("tensor_parallel_size=", "distributed_executor_backend=", "worker_extension_cls="),
        (CONFIG, GENERATOR),
        "the capturing code enters each worker as an extension class",
    ),
    Contract(
        "vllm.config:SchedulerConfig",
        Call(
            "max_num_seqs=",
            "max_model_len=",
            "max_num_batched_tokens=",
            "is_encoder_decoder=",
            "async_scheduling=",
            "enable_chunked_prefill=",
            "disable_hybrid_kv_cache_manager=",
        ),
        (CONFIG, GENERATOR, P01, P08),
        "steps are planned by this",
    ),
    Contract(
        "vllm.config:SchedulerConfig.enable_chunked_prefill",
        Default("True"),
        (P10,),
        "a prompt longer than the step budget would be refused",
    ),
    Contract(
        "vllm.config:DeviceConfig",
        Call(),
        (CONFIG, GENERATOR),
        "the device is found by itself",
    ),
    Contract(
        "vllm.config:LoadConfig",
        Call("load_format=", "use_tqdm_on_load="),
        (CONFIG, GENERATOR, P20),
        "weights are loaded as these say",
    ),
    Contract(
        "vllm.config:CompilationConfig",
        Call("custom_ops="),
        (CONFIG, P20),
        "the CPU's rotary kernel could no longer be avoided: wrong states of DeepSeek-V3",
    ),
    Contract(
        "vllm.config:VllmConfig.__post_init__",
        Does(
            "compiles nothing and captures no CUDA graph under enforce_eager",
            """
            if ... and ... and self.model_config.enforce_eager:
                ...
                self.optimization_level = OptimizationLevel.O0
            """,
            """
            if self.optimization_level > OptimizationLevel.O0:
                ...
            else:
                self.compilation_config.mode = CompilationMode.NONE
            """,
            """
            if ... and self.model_config.enforce_eager:
                ...
                self.compilation_config.cudagraph_mode = CUDAGraphMode.NONE
                ...
            """,
        ),
        (CAPTURE, P05),
        "hooks on the layers would not run, and steps would be padded with rows of nobody",
    ),
)

PLATFORM = (
    Contract(
        "vllm.model_executor.models.registry:",
        Does(
            "looks the function up by its own name",
            "_run_in_subprocess(lambda: _ModelInfo.from_model_cls(self.load_model_cls()))",
        ),
        (MODEL_CLASSES,),
        "what is put under that name in the module would not be called",
    ),
    Contract(
        "vllm.model_executor.models.registry:_run_in_subprocess",
        Call("fn"),
        (MODEL_CLASSES,),
        "a process for 0.1 s of work would cost each start on a CPU 7 s where no cache is",
    ),
    Contract(
        "vllm.model_executor.models.registry:_LazyRegisteredModel.inspect_model_cls",
        Does(
            "asks a class in another process for the sake of CUDA alone",
            """
            mi = _run_in_subprocess(
                lambda: _ModelInfo.from_model_cls(self.load_model_cls())
            )
            """,
        ),
        (MODEL_CLASSES,),
        "on a CPU the same is asked in the process itself",
    ),
    Contract(
        "vllm.platforms.cpu:CpuPlatform.check_and_update_config",
        Does("schedules nothing ahead", "scheduler_config.async_scheduling = False"),
        (CONFIG,),
        "asked for everywhere, for the sake of GPUs",
    ),
    Contract(
        "vllm.platforms:current_platform",
        Typed("Platform"),
        (P02,),
        "the platform is asked where memory comes from",
    ),
    Contract(
        "vllm.platforms.interface:Platform.is_cpu",
        Call(),
        (P02,),
        "the platform is asked where memory comes from",
    ),
    Contract(
        "vllm.platforms.cpu:CpuPlatform.check_and_update_config",
        Does(
            "sizes the KV cache of a CPU",
            "cache_config.cpu_kvcache_space_bytes = CpuPlatform.get_device_total_memory()",
        ),
        (P02,),
        "VLLM_CPU_KVCACHE_SPACE would not reach the KV cache",
    ),
    Contract(
        "vllm.platforms:cpu_platform_plugin",
        Does("asks the version for the word cpu", 'vllm_version_matches_substr("cpu")'),
        (CPU_ENVIRONMENT, ENVIRONMENT),
        "the metadata written into the environment would not choose the CPU",
    ),
    Contract(
        "vllm.platforms.cpu:CpuPlatform.check_and_update_config",
        Does("wants blocks of a multiple of 32 tokens", "cache_config.block_size % 32"),
        (CONFIG, GENERATION),
        "the engine's block size on a CPU is chosen for this",
    ),
    Contract(
        "vllm.model_executor.layers.fused_moe.cpu_fused_moe:CPUFusedMOE.check_grouped_gemm",
        Does("asks the build itself", 'hasattr(torch.ops._C, "prepack_moe_weight")'),
        (V06,),
        "attention asks the same, to know whether the build has kernels of AVX-512 and AMX",
    ),
    Contract(
        "vllm.envs:environment_variables",
        Does("VLLM_USE_V2_MODEL_RUNNER is off", 'os.getenv("VLLM_USE_V2_MODEL_RUNNER", "0")'),
        (WORKER,),
        "the other model runner keeps its batch differently",
    ),
    *(
        Contract(
            "vllm.envs:environment_variables",
            Does(f"knows {name}", f'"{name}"'),
            (ENVIRONMENT, GENERATION),
            "the engine sets it; an unknown variable is ignored without a word",
        )
        for name in (
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
            "VLLM_CACHE_ROOT",
            "VLLM_CPU_KVCACHE_SPACE",
            "VLLM_CPU_OMP_THREADS_BIND",
            "VLLM_DO_NOT_TRACK",
            "VLLM_ENABLE_V1_MULTIPROCESSING",
            "VLLM_LOGGING_LEVEL",
            "VLLM_MLA_DISABLE",
            "VLLM_NO_USAGE_STATS",
            "VLLM_PORT",
            "VLLM_RPC_BASE_PATH",
            "VLLM_WORKER_MULTIPROC_METHOD",
        )
    ),
    Contract(
        "vllm.logger:",
        Does("sets its logger up on import", "_configure_vllm_root_logger()"),
        (ENGINE, QUIET),
        "the level that the engine sets after the import would be set back",
    ),
    Contract(
        "vllm.v1.worker.cpu_worker:CPUWorker.init_device",
        Does("gives each rank its part of 0|1", '__cores.split("|")'),
        (ENVIRONMENT,),
        "all ranks would run on the same cores",
    ),
    Contract(
        "vllm.model_executor.layers.rotary_embedding.base:RotaryEmbeddingBase",
        Does("is the custom op rotary_embedding", 'CustomOp.register("rotary_embedding")'),
        (CONFIG, GENERATION),
        "the CPU's rotary kernel is switched off by this name: wrong for DeepSeek's queries",
    ),
)
