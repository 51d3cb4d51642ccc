"""How a target generates in vLLM's offline engine; compared with 0.16.0."""

from tests.contract.contract import Contract
from tests.contract.expectations import Call, Does, Has, Is
from tests.contract.relying import GENERATION, SEEDED_DRAWS

GENERATING = (
    Contract(
        "vllm.engine.arg_utils:EngineArgs",
        Call(
            "model=",
            "skip_tokenizer_init=",
            "generation_config=",
            "dtype=",
            "max_model_len=",
            "max_num_seqs=",
            "max_num_batched_tokens=",
            "enable_chunked_prefill=",
            "tensor_parallel_size=",
            "gpu_memory_utilization=",
            "trust_remote_code=",
            "async_scheduling=",
            "worker_extension_cls=",
            "disable_log_stats=",
            "use_tqdm_on_load=",
            "limit_mm_per_prompt=",
            "block_size=",
            "enforce_eager=",
            "compilation_config=",
        ),
        (GENERATION,),
        "the target is started with these options",
    ),
    Contract(
        "vllm.v1.engine.llm_engine:LLMEngine.from_engine_args",
        Call("engine_args"),
        (GENERATION,),
        "the engine is made from its options",
    ),
    Contract(
        "vllm.v1.engine.llm_engine:LLMEngine.from_engine_args",
        Does(
            "runs in a process of its own only where VLLM_ENABLE_V1_MULTIPROCESSING says so",
            """
            if envs.VLLM_ENABLE_V1_MULTIPROCESSING:
                ...
                enable_multiprocessing = True
            """,
            "cls(..., multiprocess_mode=enable_multiprocessing)",
        ),
        (GENERATION,),
        "which prompts run together would depend on what had arrived: no run could be repeated",
    ),
    Contract(
        "vllm.v1.engine.llm_engine:LLMEngine.add_request",
        Call("request_id", "prompt", "params"),
        (GENERATION,),
        "prompts are handed in as token ids, by key",
    ),
    Contract(
        "vllm.v1.engine.llm_engine:LLMEngine.step",
        Does(
            "runs one step and returns what has ended",
            "outputs = self.engine_core.get_output()",
            "return processed_outputs.request_outputs",
        ),
        (GENERATION,),
        "answers are taken from what a step returns",
    ),
    Contract(
        "vllm.v1.engine.core_client:InprocClient.get_output",
        Does("steps the engine in the caller's process", "self.engine_core.step_fn()"),
        (GENERATION,),
        "the order of steps would no longer follow from the calls alone",
    ),
    Contract(
        "vllm.v1.engine.core_client:InprocClient.shutdown",
        Call(),
        (GENERATION,),
        "workers and their memory would outlive the engine",
    ),
    Contract(
        "vllm.sampling_params:SamplingParams",
        Call(
            "temperature=",
            "top_p=",
            "top_k=",
            "min_p=",
            "repetition_penalty=",
            "seed=",
            "max_tokens=",
            "stop_token_ids=",
            "detokenize=",
            "output_kind=",
            "skip_clone=",
        ),
        (GENERATION,),
        "how the next token is chosen",
    ),
    Contract(
        "vllm.sampling_params:RequestOutputKind",
        Has("FINAL_ONLY"),
        (GENERATION,),
        "every step would make an object for every running prompt",
    ),
    Contract(
        "vllm.v1.engine.llm_engine:LLMEngine.collective_rpc",
        Call("method"),
        (GENERATION,),
        "workers are told to draw seeded sequences together",
    ),
    Contract(
        "vllm.v1.sample.ops.topk_topp_sampler:TopKTopPSampler.forward_native",
        Does(
            "draws by a name that can be given another function",
            "return random_sample(probs, generators), logits_to_return",
        ),
        (SEEDED_DRAWS,),
        "each seeded sequence would take a kernel of its own",
    ),
    Contract(
        "vllm.v1.sample.ops.topk_topp_sampler:random_sample",
        Call("probs", "generators"),
        (SEEDED_DRAWS,),
        "eagle3/engine/seeded_draws.py stands in for it",
    ),
    Contract(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._update_states",
        Does(
            "gives each seeded sequence a generator with its seed",
            """
            generator = torch.Generator(device=self.device)
            generator.manual_seed(sampling_params.seed)
            """,
        ),
        (GENERATION, SEEDED_DRAWS),
        "the seed of a prompt would not choose its answer",
    ),
    Contract(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._bookkeeping_sync",
        Does(
            "moves a generator back by one draw where it throws a token away",
            "__generator.set_offset(__generator.get_offset() - 4)",
        ),
        (SEEDED_DRAWS,),
        "an answer would depend on tokens that nobody saw",
    ),
    Contract(
        "vllm.v1.sample.ops.topk_topp_sampler:TopKTopPSampler.forward_cpu",
        Does(
            "draws each sequence from its own generator",
            """
            for __row, __generator in generators.items():
                __q[__row].exponential_(generator=__generator)
            """,
        ),
        (GENERATION,),
        "on a CPU, the seed of a prompt would not choose its answer",
    ),
    Contract(
        "vllm.v1.core.sched.utils:check_stop",
        Does(
            "ends at a stop token, which is generated already, before it looks at the length",
            """
            if last_token_id in (sampling_params.stop_token_ids or ()):
                request.status = RequestStatus.FINISHED_STOPPED
                ...
            if request.num_tokens >= max_model_len or request.num_output_tokens >= ...:
                request.status = RequestStatus.FINISHED_LENGTH_CAPPED
                ...
            """,
        ),
        (GENERATION,),
        "an answer would lack its end-of-turn token, and the mask with it",
    ),
    Contract(
        "vllm.v1.core.sched.scheduler:Scheduler.schedule",
        Does(
            "lets a prompt wait for the next step where it does not fit into this one",
            """
            if not self.scheduler_config.enable_chunked_prefill and ... > token_budget:
                break
            """,
        ),
        (GENERATION,),
        "a prompt in several steps draws from its seed in each, and fails on a CPU",
    ),
    Contract(
        "vllm.outputs:RequestOutput",
        Has("request_id", "outputs"),
        (GENERATION,),
        "answers are found by their key",
    ),
    Contract(
        "vllm.outputs:CompletionOutput",
        Has("token_ids", "finish_reason"),
        (GENERATION,),
        "token ids and mask are taken from here",
    ),
    Contract(
        "vllm.config.compilation:CompilationMode.NONE",
        Is("0"),
        (GENERATION,),
        "compiling would want a C++ compiler on the machine",
    ),
    Contract(
        "vllm.config.compilation:CUDAGraphMode.FULL_DECODE_ONLY",
        Is("(FULL, NONE)"),
        (GENERATION,),
        "graphs of whole decoding steps need nothing compiled",
    ),
)
