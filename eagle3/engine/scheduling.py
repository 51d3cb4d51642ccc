"""Fills the steps of a target with prompts, by vLLM's own scheduler."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig


@dataclass(frozen=True)
class Step:
    """`output` is for the model runner; `ranges` says which rows of which request it runs."""

    output: "SchedulerOutput"
    ranges: dict[str, range]


class StepScheduler:
    """Plans steps of prompts first come, first served; the last prompt of a step may be cut.

    A prompt leaves as soon as its last rows are planned: what follows runs after them.
    """

    def __init__(self, config: "VllmConfig", cache: "KVCacheConfig") -> None:
        self._most_tokens = config.scheduler_config.max_num_batched_tokens
        self._waiting_tokens = 0
        self._scheduler = Scheduler(
            vllm_config=config,
            kv_cache_config=cache,
            structured_output_manager=StructuredOutputManager(vllm_config=config),
            block_size=config.cache_config.block_size,
        )

    @property
    def wants_more(self) -> bool:
        """Whether what waits may be too little to fill a step."""
        return self._waiting_tokens < self._most_tokens

    @property
    def requests(self) -> tuple[str, ...]:
        """The prompts that are not planned to their end, in the order in which they came."""
        return tuple(self._scheduler.requests)

    def add(self, request: str, token_ids: Sequence[int]) -> None:
        """Queues a prompt under a name that no other prompt has had."""
        self._waiting_tokens += len(token_ids)
        self._scheduler.add_request(
            Request(
                request_id=request,
                prompt_token_ids=list(token_ids),
                sampling_params=SamplingParams(max_tokens=1, temperature=0.0),
                pooling_params=None,
                arrival_time=0.0,
                # Prompts are never continued: any value does.
                eos_token_id=None,
            )
        )

    def next_step(self) -> Step | None:
        """The next step, or None where nothing can run."""
        output = self._scheduler.schedule()
        if not output.total_num_scheduled_tokens:
            return None
        self._waiting_tokens -= output.total_num_scheduled_tokens
        ranges = {}
        for request_id, tokens in output.num_scheduled_tokens.items():
            request = self._scheduler.requests[request_id]
            # schedule() has already counted this step's tokens as computed.
            end = request.num_computed_tokens
            ranges[request_id] = range(end - tokens, end)
            if end == request.num_prompt_tokens:
                self._scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)
        return Step(output, ranges)

    def clear(self) -> None:
        """Forgets all prompts: after an error, what is queued would run in the next call."""
        self._scheduler.finish_requests(self.requests, RequestStatus.FINISHED_ABORTED)
        self._waiting_tokens = 0
