"""The target's worker processes: started, called with a time limit, and gone afterwards."""

import time
from typing import TYPE_CHECKING, Any

from vllm.v1.core.kv_cache_utils import (
    generate_scheduler_kv_cache_config,
    get_kv_cache_config_from_groups,
    get_kv_cache_groups,
)
from vllm.v1.executor.multiproc_executor import MultiprocExecutor

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

# The longest call of a start compiles kernels.
_START_TIMEOUT_S = 1800.0
_SECONDS_BETWEEN_LOOKS = 0.0005


class Workers:
    """One process a rank, with the target loaded and its KV cache made.

    Methods raise RuntimeError for an error in a worker, and TimeoutError. Construction leaves no
    process where it fails.
    """

    cache: "KVCacheConfig"

    def __init__(self, config: "VllmConfig") -> None:
        self._config = config
        self.executor = MultiprocExecutor(vllm_config=config)
        for replies in self.executor.response_mqs:
            replies._read_spin_timer = _SleepTimer()
        try:
            self.cache = self._make_cache()
            self.call("compile_or_warm_up_model", timeout_s=_START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    def _make_cache(self) -> "KVCacheConfig":
        specs = self.call("get_kv_cache_spec", timeout_s=_START_TIMEOUT_S)
        groups = get_kv_cache_groups(self._config, specs[0])
        # The number of blocks is known (num_gpu_blocks_override), so memory is not asked for.
        cache = get_kv_cache_config_from_groups(
            vllm_config=self._config, kv_cache_groups=groups, available_memory=0
        )
        self._config.cache_config.num_gpu_blocks = cache.num_blocks
        self.call("initialize_from_config", [cache] * len(specs), timeout_s=_START_TIMEOUT_S)
        return generate_scheduler_kv_cache_config([cache])

    def call(self, method: str, *arguments: Any, timeout_s: float) -> list[Any]:
        """Calls a method of every worker: their replies, in the order of the ranks."""
        return self.executor.collective_rpc(method, timeout=timeout_s, args=arguments)

    @property
    def count(self) -> int:
        return len(self.executor.response_mqs)

    @property
    def dead(self) -> str | None:
        """How a worker process died, or None."""
        if not self.executor.is_failed:
            return None
        codes = sorted({code for worker in self.executor.workers if (code := worker.proc.exitcode)})
        return (
            f"a worker process died (exit code {', '.join(map(str, codes)) or 'unknown'}): "
            "perhaps the machine ran out of memory; take fewer tokens a step"
        )

    def close(self) -> None:
        """Stops the workers and waits until they are gone."""
        self.executor.shutdown()
        for worker in self.executor.workers:
            # A worker that had to be killed stays a zombie until somebody waits for it.
            worker.proc.join()
        # The queues map shared memory, and vLLM's exit handler keeps the executor. A socket left
        # open can block the garbage collector in the end of its context.
        for replies in self.executor.response_mqs:
            replies.local_socket.close(linger=0)
        self.executor.response_mqs.clear()


class _SleepTimer:
    """Waits for a message with short sleeps; vLLM's SpinTimer would take a core from the target."""

    def spin(self) -> None:
        time.sleep(_SECONDS_BETWEEN_LOOKS)

    def record_activity(self) -> None:
        pass
