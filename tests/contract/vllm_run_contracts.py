"""How prompts are run by vLLM, step by step; compared with 0.16.0."""

from tests.contract.contract import Contract
from tests.contract.expectations import Call, Does, Exists, Has, Inherits, Lacks, Typed
from tests.contract.relying import (
    BASELINES,
    CAPTURE_WORKER,
    CONFIG,
    GENERATOR,
    HOST_COUNTS,
    P03,
    P04,
    P05,
    P07,
    P08,
    P09,
    P10,
    P11,
    P14,
    P18,
    P20,
    P21,
    P22,
    P23,
    P25,
    SCHEDULER,
    WORKER,
    WORKER_LOG,
    WORKERS,
)

COUNTS = (
    Contract(
        "vllm.model_executor.layers.attention.mla_attention:MLACommonMetadataBuilder.build",
        Call("common_prefix_len", "common_attn_metadata", "fast_build"),
        (HOST_COUNTS,),
        "it is called through a wrapper",
    ),
    Contract(
        "vllm.model_executor.layers.attention.mla_attention:MLACommonMetadataBuilder.build",
        Does(
            "asks for the counts by this method, and for the host's copy alone",
            "__counts = common_attn_metadata.compute_num_computed_tokens().cpu()",
        ),
        (HOST_COUNTS,),
        "each step would wait for the one before, and for its rows on the way to the host",
    ),
    Contract(
        "vllm.v1.attention.backend:CommonAttentionMetadata.compute_num_computed_tokens",
        Does(
            "keeps what is there",
            """
            if self._num_computed_tokens_cache is None:
                ...
            """,
            "return self._num_computed_tokens_cache",
        ),
        (HOST_COUNTS,),
        "the host's counts are put there",
    ),
    Contract(
        "vllm.v1.attention.backend:CommonAttentionMetadata",
        Has("_num_computed_tokens_cpu", "_num_computed_tokens_cache"),
        (HOST_COUNTS,),
        "the host's counts are there",
    ),
)

SCHEDULING = (
    Contract(
        "vllm.v1.core.sched.scheduler:Scheduler",
        Call("vllm_config=", "kv_cache_config=", "structured_output_manager=", "block_size="),
        (SCHEDULER, GENERATOR, P04),
        "the generator drives the scheduler itself",
    ),
    Contract(
        "vllm.v1.core.sched.scheduler:Scheduler.schedule",
        Does(
            "counts the step's tokens as computed before it returns",
            "self._update_after_schedule(scheduler_output)",
            "return scheduler_output",
        ),
        (SCHEDULER, P10),
        "a step's rows end at num_computed_tokens",
    ),
    Contract(
        "vllm.v1.core.sched.scheduler:Scheduler._update_after_schedule",
        Does(
            "advances num_computed_tokens by the scheduled tokens",
            """
            for __id, __count in num_scheduled_tokens.items():
                __request = self.requests[__id]
                __request.num_computed_tokens += __count
                ...
            """,
        ),
        (SCHEDULER, P10),
        "the positions of the captured rows would be wrong",
    ),
    Contract(
        "vllm.v1.core.sched.scheduler:Scheduler._preempt_request",
        Does("starts a preempted request again", "request.num_computed_tokens = 0"),
        (P10,),
        "rows are written by position, so that a second run of a request overwrites the first",
    ),
    Contract(
        "vllm.v1.core.sched.scheduler:Scheduler.add_request",
        Call("request"),
        (SCHEDULER, GENERATOR),
        "how a prompt is handed to the scheduler",
    ),
    Contract(
        "vllm.v1.core.sched.scheduler:Scheduler.finish_requests",
        Call("request_ids", "finished_status"),
        (SCHEDULER, P10, P14),
        "how a finished or failed prompt leaves the scheduler",
    ),
    Contract(
        "vllm.v1.core.sched.scheduler:Scheduler.finish_requests",
        Does(
            "takes one id or several, and passes over those it does not know",
            """
            if isinstance(request_ids, str):
                request_ids = (request_ids,)
            """,
            """
            for __id in request_ids:
                __request = self.requests.get(__id)
                if __request is None or ...:
                    continue
                ...
            """,
        ),
        (SCHEDULER, P10, P14),
        "clearing up after a failure names requests that are gone already",
    ),
    Contract(
        "vllm.v1.core.sched.scheduler:Scheduler._free_blocks",
        Does("forgets a finished request", "del self.requests[request.request_id]"),
        (SCHEDULER, P14),
        "requests that are left over are taken for prompts that did not fit",
    ),
    Contract(
        "vllm.v1.core.sched.scheduler:Scheduler.requests",
        Typed("dict[str, Request]"),
        (SCHEDULER, P10, P14),
        "requests are looked up by id to see how far they are",
    ),
    Contract(
        "vllm.v1.core.sched.output:SchedulerOutput.num_scheduled_tokens",
        Typed("dict[str, int]"),
        (SCHEDULER, P10),
        "how many rows of a step belong to which request",
    ),
    Contract(
        "vllm.v1.core.sched.output:SchedulerOutput.total_num_scheduled_tokens",
        Typed("int"),
        (SCHEDULER, GENERATOR, P10),
        "the rows of a step; 0 ends the loop over steps",
    ),
    Contract(
        "vllm.v1.request:Request",
        Call(
            "request_id=",
            "prompt_token_ids=",
            "sampling_params=",
            "pooling_params=",
            "arrival_time=",
            "eos_token_id?=",
        ),
        (SCHEDULER, GENERATOR, P11),
        "each prompt becomes a request made by hand",
    ),
    Contract(
        "vllm.v1.request:Request",
        Has("num_computed_tokens", "num_prompt_tokens"),
        (SCHEDULER, P10),
        "how far a prompt is, and when it is complete",
    ),
    Contract(
        "vllm.v1.request:RequestStatus.FINISHED_ABORTED",
        Exists(),
        (SCHEDULER, GENERATOR),
        "the status with which a prompt leaves after its prefill",
    ),
    Contract(
        "vllm.sampling_params:SamplingParams",
        Call("max_tokens=", "temperature=", "detokenize="),
        (BASELINES, SCHEDULER, GENERATOR),
        "a request needs sampling parameters though nothing is generated",
    ),
    Contract(
        "vllm.v1.structured_output:StructuredOutputManager",
        Call("vllm_config="),
        (SCHEDULER, GENERATOR),
        "the scheduler needs one",
    ),
    Contract(
        "vllm.v1.core.kv_cache_utils:unify_hybrid_kv_cache_specs",
        Call("kv_cache_spec"),
        (GENERATOR,),
        "models with sliding windows get one kind of KV cache",
    ),
    Contract(
        "vllm.v1.core.kv_cache_utils:_get_kv_cache_groups_uniform_spec",
        Call("kv_cache_specs"),
        (GENERATOR,),
        "the KV cache is one group",
    ),
    Contract(
        "vllm.v1.core.kv_cache_utils:get_kv_cache_config_from_groups",
        Call("vllm_config=", "kv_cache_groups=", "available_memory="),
        (WORKERS, GENERATOR, P03),
        "the KV cache is sized by this",
    ),
    Contract(
        "vllm.v1.core.kv_cache_utils:get_kv_cache_groups",
        Call("vllm_config", "kv_cache_spec"),
        (WORKERS,),
        "which layers share blocks of the KV cache",
    ),
    Contract(
        "vllm.v1.core.kv_cache_utils:get_kv_cache_groups",
        Does(
            "takes all layers for one kind under disable_hybrid_kv_cache_manager",
            """
            if vllm_config.scheduler_config.disable_hybrid_kv_cache_manager:
                unify_hybrid_kv_cache_specs(kv_cache_spec)
            """,
        ),
        (CONFIG,),
        "the blocks of a step are counted for one group of layers",
    ),
    Contract(
        "vllm.v1.core.kv_cache_utils:generate_scheduler_kv_cache_config",
        Call("kv_cache_configs"),
        (WORKERS,),
        "the scheduler's view of the KV cache",
    ),
    Contract(
        "vllm.v1.core.sched.scheduler:Scheduler._update_after_schedule",
        Does(
            "leaves the finished requests of a step to its output",
            "self.finished_req_ids = set()",
        ),
        (SCHEDULER,),
        "a prompt that leaves once its last step is planned would be gone before that step",
    ),
    Contract(
        "vllm.v1.core.kv_cache_utils:may_override_num_blocks",
        Does(
            "takes num_gpu_blocks_override for the number of blocks",
            """
            __override = vllm_config.cache_config.num_gpu_blocks_override
            ...
            num_blocks = __override
            """,
        ),
        (CONFIG, P20),
        "the KV cache would be larger or smaller than the prompts of a step need",
    ),
    Contract(
        "vllm.v1.kv_cache_interface:KVCacheConfig.num_blocks",
        Typed("int"),
        (WORKERS, GENERATOR),
        "the number of blocks that fit",
    ),
)

EXECUTION = (
    Contract(
        "vllm.v1.executor.multiproc_executor:MultiprocExecutor",
        Call("vllm_config="),
        (WORKERS, GENERATOR),
        "the workers are started by this",
    ),
    Contract(
        "vllm.v1.executor.multiproc_executor:MultiprocExecutor.collective_rpc",
        Call("method", "timeout=", "args=", "unique_reply_rank="),
        (WORKERS, GENERATOR, P07, P22),
        "the capturing code is reached by this",
    ),
    Contract(
        "vllm.v1.executor.multiproc_executor:MultiprocExecutor.collective_rpc",
        Does(
            "returns the value itself when one rank replies, else a list",
            "__rank = unique_reply_rank",
            "return __responses[0] if __rank is not None else __responses",
        ),
        (WORKERS, P07),
        "taking element 0 of the reply would take the first layer of the states",
    ),
    Contract(
        "vllm.v1.executor.multiproc_executor:MultiprocExecutor.collective_rpc",
        Does(
            "ends a call that takes too long by TimeoutError",
            "raise TimeoutError(...) from __cause",
        ),
        (WORKERS, P22),
        "a worker that hangs would not be noticed",
    ),
    Contract(
        "vllm.v1.executor.multiproc_executor:MultiprocExecutor.collective_rpc",
        Does(
            "repeats a worker's error in a RuntimeError, in these words",
            """
            if status != WorkerProc.ResponseStatus.SUCCESS:
                raise RuntimeError(
                    f"Worker failed with error '{__error}', please check the"
                    " stack trace above for the root cause"
                )
            """,
        ),
        (WORKER_LOG,),
        "the user would be shown all of it instead of the one line in it",
    ),
    Contract(
        "vllm.v1.executor.multiproc_executor:WorkerProc.worker_busy_loop",
        Does("finds a method by its name", "func = getattr(self.worker, method)"),
        (CAPTURE_WORKER, GENERATOR),
        "the capturing code is called by name",
    ),
    Contract(
        "vllm.v1.executor.abstract:Executor.initialize_from_config",
        Does(
            "makes two calls to the workers",
            """
            self.collective_rpc("initialize_from_config", args=(kv_cache_configs,))
            self.collective_rpc("compile_or_warm_up_model")
            """,
        ),
        (WORKERS, P22),
        "the generator makes the same two, with a time-out",
    ),
    Contract(
        "vllm.v1.executor.multiproc_executor:MultiprocExecutor",
        Has("workers", "response_mqs"),
        (WORKERS, P21),
        "what is waited for and let go after a shutdown",
    ),
    Contract(
        "vllm.v1.executor.multiproc_executor:WorkerProcHandle.proc",
        Exists(),
        (WORKERS, P21),
        "worker processes would stay behind as zombies",
    ),
    Contract(
        "vllm.v1.executor.multiproc_executor:MultiprocExecutor.shutdown",
        Call(),
        (WORKERS, P21),
        "ends the workers",
    ),
    Contract(
        "vllm.v1.executor.multiproc_executor:MultiprocExecutor.shutdown",
        Does(
            "may be called twice",
            """
            if not getattr(self, "shutting_down", False):
                ...
            """,
        ),
        (WORKERS, P21),
        "a program that ends would fail in its second shutdown",
    ),
    Contract(
        "vllm.distributed.device_communicators.shm_broadcast:MessageQueue.enqueue",
        Does("pickles arrays out of band", "pickle.dumps(..., buffer_callback=__callback)"),
        (P23,),
        "states would be copied once more on their way: slower, not wrong",
    ),
    Contract(
        "vllm.distributed.device_communicators.shm_broadcast:MessageQueue.acquire_read",
        Does(
            "waits and is woken by its timer",
            "self._read_spin_timer.spin()",
            "self._read_spin_timer.record_activity()",
        ),
        (WORKERS, P25),
        "the process that waits for a step would take a whole processor from the model",
    ),
    Contract(
        "vllm.v1.executor.multiproc_executor:MultiprocExecutor",
        Has("is_failed"),
        (WORKERS,),
        "tells that a worker process died",
    ),
    Contract(
        "vllm.v1.worker.worker_base:WorkerWrapperBase.init_worker",
        Does(
            "mixes the extension class into the worker",
            "worker_class.__bases__ = worker_class.__bases__ + (worker_extension_cls,)",
        ),
        (CAPTURE_WORKER, WORKER),
        "the capturing code would not be in the workers",
    ),
    Contract(
        "vllm.v1.worker.worker_base:WorkerWrapperBase.__getattr__",
        Does("hands every other name on to the worker", "getattr(self.worker, attr)"),
        (CAPTURE_WORKER, WORKER),
        "the capturing code could not be called by name",
    ),
    Contract(
        "vllm.v1.worker.worker_base:WorkerWrapperBase.initialize_from_config",
        Does(
            "takes a list and picks the rank's own",
            "kv_cache_config = kv_cache_configs[self.global_rank]",
        ),
        (WORKERS, P22),
        "the KV cache is set up by this",
    ),
    Contract(
        "vllm.v1.worker.gpu_worker:Worker",
        Has("model_runner", "get_kv_cache_spec", "compile_or_warm_up_model"),
        (CAPTURE_WORKER, WORKERS, GENERATOR, WORKER, P22),
        "called by name in the workers",
    ),
    *(
        Contract(
            worker,
            Lacks("start_capture", "run_captured_step", "finish_capture", "_row_sender"),
            (CAPTURE_WORKER,),
            "the names of the capturing code would clash with the worker's own",
        )
        for worker in (
            "vllm.v1.worker.gpu_worker:Worker",
            "vllm.v1.worker.cpu_worker:CPUWorker",
        )
    ),
    *(
        Contract(
            worker,
            Lacks(
                "_layer_ids",
                "_captured_states",
                "_capture_layer",
                "_capture_embedding",
                "_setup_hidden_states_capture",
                "_execute_step",
            ),
            (WORKER,),
            "the names of the capturing code would clash with the worker's own",
        )
        for worker in (
            "vllm.v1.worker.gpu_worker:Worker",
            "vllm.v1.worker.cpu_worker:CPUWorker",
        )
    ),
    Contract(
        "vllm.v1.worker.gpu_worker:Worker.execute_model",
        Call("scheduler_output"),
        (CAPTURE_WORKER, P08, P10),
        "one step of the target",
    ),
    Contract(
        "vllm.v1.worker.gpu_worker:Worker.sample_tokens",
        Call("grammar_output"),
        (P08, P10),
        "must follow a step that returned None",
    ),
    Contract(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner.execute_model",
        Does(
            "keeps the step's state and returns None",
            """
            self.execute_model_state = ExecuteModelState(...)
            ...
            return None
            """,
        ),
        (CAPTURE_WORKER, P08),
        "sample_tokens() follows exactly when None came back",
    ),
    Contract(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner.execute_model",
        Does(
            "refuses a second step before sample_tokens()",
            """
            if self.execute_model_state is not None:
                raise RuntimeError(...)
            """,
        ),
        (CAPTURE_WORKER, P08),
        "the fault that the patch mends",
    ),
    Contract(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner.sample_tokens",
        Does("clears the step's state", "self.execute_model_state = None"),
        (P08,),
        "the next step would be refused",
    ),
    Contract(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner.execute_model",
        Does(
            "lays the rows of a step out in the order of input_batch.req_ids",
            """
            req_ids = self.input_batch.req_ids
            tokens = [scheduler_output.num_scheduled_tokens[i] for i in req_ids]
            """,
        ),
        (CAPTURE_WORKER, P10),
        "rows would be given to the wrong request",
    ),
    Contract(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner",
        Has("model", "input_batch"),
        (CAPTURE_WORKER, WORKER, P09, P10),
        "the way from the worker to the model and to the order of the rows",
    ),
    Contract(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner",
        Has("device", "get_model", "execute_model_state"),
        (CAPTURE_WORKER,),
        "the model to hook, where it runs, and what is put away in place of sampling",
    ),
    Contract(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner.execute_model",
        Does(
            "asks the model for logits, and looks at them no further",
            "logits = self.model.compute_logits(__rows)",
            "self.execute_model_state = ExecuteModelState(..., logits, ...)",
        ),
        (CAPTURE_WORKER,),
        "the head is left out by replacing compute_logits, so that logits are None",
    ),
    Contract(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner.synchronize_input_prep",
        Does(
            "waits until the step before has read its inputs",
            "self.prepare_inputs_event.synchronize()",
            "self.prepare_inputs_event.record()",
        ),
        (CAPTURE_WORKER, CONFIG),
        "steps are queued on a GPU: the buffers of one would be overwritten by the next",
    ),
    Contract(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner.__init__",
        Does(
            "does so under async_scheduling",
            """
            if self.use_async_scheduling:
                ...
                self.prepare_inputs_event = torch.Event()
            """,
        ),
        (CONFIG,),
        "steps are queued on a GPU: the buffers of one would be overwritten by the next",
    ),
    Contract(
        "vllm.v1.worker.gpu_input_batch:InputBatch.req_ids",
        Typed("list[str]"),
        (CAPTURE_WORKER, P10),
        "the order of the requests in the rows of a step",
    ),
    Contract(
        "vllm.v1.worker.cpu_worker:CPUWorker",
        Inherits("Worker"),
        (WORKER,),
        "what holds for the GPU worker would not hold on a CPU",
    ),
    Contract(
        "vllm.v1.worker.cpu_model_runner:CPUModelRunner",
        Inherits("GPUModelRunner"),
        (CAPTURE_WORKER, WORKER),
        "what holds for the GPU runner would not hold on a CPU",
    ),
    Contract(
        "vllm.distributed:get_tp_group",
        Call(),
        (CAPTURE_WORKER, WORKER, P05),
        "which rank captures",
    ),
    Contract(
        "vllm.distributed:get_pp_group",
        Call(),
        (CAPTURE_WORKER, WORKER, P18),
        "pipeline stages hold a part of the layers each and are refused",
    ),
    Contract(
        "vllm.distributed.parallel_state:GroupCoordinator",
        Has("rank_in_group", "world_size"),
        (CAPTURE_WORKER, WORKER, P05, P18),
        "the place of a worker in its group",
    ),
)
