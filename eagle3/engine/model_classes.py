"""On a CPU vLLM looks at a target's class in this process, not in another one."""

from eagle3.engine.environment import runs_on_cpu


def look_at_models_here() -> None:
    """From now on, in this process; changes nothing on a GPU.

    vLLM 0.16.0 asks a target's class what it can do in a process of its own, to keep CUDA out of
    this one, and notes the answer in the user's cache. Where there is no such note (at a first
    start, in a container, in a test) that process takes 7 s, as long as the worker, to import what
    is imported here already. Without CUDA there is nothing to keep out.
    """
    if runs_on_cpu():
        import vllm.model_executor.models.registry as registry

        registry._run_in_subprocess = lambda fn: fn()
