"""Every environment variable that vLLM, torch and transformers need, set in this one place.

vLLM reads most of them at import or in its worker processes, which inherit them. None is ever
asked of the user.
"""

import os
import random
import tempfile
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from eagle3.engine.architecture import TargetArchitecture

# The ports that the system gives to whoever names none: the first and the last one.
_PORTS_OF_THE_SYSTEM = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_PORT = 10_000
# Of those that vLLM may try from the first one on.
_PORTS = 100


def runs_on_cpu() -> bool:
    """Whether the installed vLLM is the CPU build, by the same rule as vllm/platforms (0.16.0)."""
    return "cpu" in version("vllm")


def set_environment(
    architecture: TargetArchitecture,
    tensor_parallel: int,
    max_model_len: int,
    *,
    sockets: Path,
    verbose: bool,
) -> None:
    """Sets the variables for one engine; call it before vLLM is imported and its workers start.

    `max_model_len` is the longest prompt in tokens; `sockets` the folder where the engine and its
    workers meet.
    """
    os.environ.update(_always(verbose))
    os.environ["VLLM_RPC_BASE_PATH"] = str(sockets)
    _set_port()
    set_caches()
    if runs_on_cpu():
        os.environ.update(_on_cpu(tensor_parallel))
    if max_model_len == architecture.max_position_embeddings:
        # vLLM keeps a position for the token it could generate after the longest prompt. It
        # generates none here, so no position beyond the target's own is ever used.
        os.environ["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"
    else:
        os.environ.pop("VLLM_ALLOW_LONG_MAX_MODEL_LEN", None)


def _always(verbose: bool) -> dict[str, str]:
    return {
        # Targets are folders; nothing may be looked up or reported elsewhere.
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
        # A forked worker would inherit torch's threads, which do not survive a fork.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_LOGGING_LEVEL": "INFO" if verbose else "ERROR",
        "TRANSFORMERS_VERBOSITY": "info" if verbose else "error",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _set_port() -> None:
    """Lets the ranks meet at a port that the system gives to nobody.

    vLLM 0.16.0 asks the system for a free port and frees it; the worker takes it when its imports
    are done, many seconds later. Where somebody else was given it meanwhile, the start fails with
    EADDRINUSE. From VLLM_PORT on, vLLM takes the first one that is free.
    """
    os.environ.pop("VLLM_PORT", None)
    try:
        end = int(_PORTS_OF_THE_SYSTEM.read_text(encoding="ascii").split()[0]) - _PORTS
    except OSError:
        return
    if end > _FIRST_PORT:
        # Engines that start at once on one machine take others, whatever the seed of this process.
        os.environ["VLLM_PORT"] = str(random.SystemRandom().randrange(_FIRST_PORT, end))


def set_caches() -> None:
    """Says where to cache, for a user without a name or a home, as in a container."""
    for name, value in _caches().items():
        os.environ.setdefault(name, value)


def _caches() -> dict[str, str]:
    # torch asks for the user's name, and a uid without a passwd entry has none.
    user = {"USER": str(os.getuid())}
    if "HOME" in os.environ and os.access(os.environ["HOME"], os.W_OK):
        return user
    cache = Path(tempfile.gettempdir(), f"eagle3-cache-{os.getuid()}")
    return user | {
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "torchinductor"),
        "HF_HOME": str(cache / "huggingface"),
    }


def _on_cpu(tensor_parallel: int) -> dict[str, str]:
    return {
        # Compiled graphs need a C++ compiler on the machine; the states are the same.
        "TORCHDYNAMO_DISABLE": "1",
        # The engine sets the number of blocks itself; unset, vLLM warns and takes half the RAM.
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": omp_threads_bind(
            physical_cores(os.sched_getaffinity(0)), tensor_parallel
        ),
        # vLLM has no kernels for latent attention on the CPU: the layers run as plain attention.
        "VLLM_MLA_DISABLE": "1",
    }


def omp_threads_bind(cpus: Iterable[int], tensor_parallel: int) -> str:
    """The CPUs of each rank in vLLM's form: `0,1|2,3` for two ranks on four CPUs.

    vLLM's own split calls lscpu and wants a NUMA node a rank. With more ranks than CPUs, ranks
    share them.
    """
    ordered = sorted(cpus)
    share = max(1, len(ordered) // tensor_parallel)
    ranks = []
    for rank in range(tensor_parallel):
        first = rank * share % len(ordered)
        ranks.append(ordered[first : first + share])
    return "|".join(",".join(map(str, rank)) for rank in ranks)


def physical_cores(cpus: Iterable[int]) -> list[int]:
    """One of `cpus` for each physical core: matrix products gain nothing from a second thread."""
    cores: dict[str, int] = {}
    for cpu in sorted(cpus):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            core = siblings.read_text(encoding="ascii")
        except OSError:
            core = str(cpu)
        cores.setdefault(core, cpu)
    return list(cores.values())
