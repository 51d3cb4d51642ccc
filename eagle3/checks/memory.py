"""Whether weights, KV cache and a step fit into memory, and the host's buffers into the host's."""

from collections.abc import Iterator
from math import ceil

from eagle3.checks.finding import Finding
from eagle3.checks.situation import Situation
from eagle3.engine.configuration import CPU_BLOCK_SIZE, cache_blocks
from eagle3.extraction.size import readable_size

_BYTES = 2  # of a bfloat16
# Seen beside the weights in a process that runs a target: libraries, and on a GPU the driver's
# context and the communication between ranks.
_PROCESS_BYTES = 1_200_000_000


def check_memory(situation: Situation) -> Iterator[Finding]:
    """The memory of each GPU and that of the host; on the CPU stack all is in the host's.

    A request without a ring is of no extraction, and has no options to lower.
    """
    request, machine = situation.request, situation.machine
    ranks = request.tensor_parallel
    weights = ceil(situation.checkpoint.loaded / ranks)
    cache, step = _cache_bytes(situation), _step_bytes(situation)
    parts = (
        f"{readable_size(weights)} of weights, {readable_size(cache)} of KV cache, "
        f"{readable_size(step)} for a step"
    )
    needed = weights + cache + step + _PROCESS_BYTES
    extracts = request.ring_bytes > 0
    ring = f"{readable_size(request.ring_bytes)} of ring" if extracts else "no ring"
    if machine.device == "cpu":
        yield _compare(
            f"{ranks} ranks with {parts}, {ring} each" if ranks > 1 else f"{parts}, {ring}",
            ranks * (needed + request.ring_bytes),
            machine.available,
            "free memory, "
            + ("lower --max-tokens-per-step or --ring-size, " if extracts else "")
            + "or take a machine with more",
            # Cache and ring take what they are filled with, which may be less.
            at_least=ranks * (weights + step + _PROCESS_BYTES),
        )
        return
    yield _compare(
        f"host: {ranks} ranks with {ring} each" if ranks > 1 else f"host: {ring}",
        ranks * (request.ring_bytes + _PROCESS_BYTES),
        machine.available,
        f"free memory, {'lower --ring-size, ' if extracts else ''}or take a machine with more",
    )
    if not machine.gpus:
        return
    gpu = min(machine.gpus[:ranks], key=lambda gpu: gpu.free)
    share = request.gpu_memory_utilization
    budget = int(share * gpu.memory)
    if gpu.free < budget:
        free = gpu.free / gpu.memory
        yield Finding(
            "memory",
            "fail",
            f"{free:.0%} of a GPU is free, and --gpu-memory-utilization {share:g} asks for more",
            "end what else runs there (nvidia-smi tells), or lower the share",
        )
        return
    yield _compare(
        f"each GPU: {parts}",
        needed,
        budget,
        f"raise --tp above {ranks} or --gpu-memory-utilization above {share:g}"
        + (", or lower --max-tokens-per-step" if extracts else ""),
    )


def _compare(
    what: str, needed: int, available: int, fix: str, at_least: int | None = None
) -> Finding:
    """`at_least` is what is needed in any case, all of it where it is None."""
    found = f"{what}: {readable_size(needed)} in all, {readable_size(available)} can be had"
    if needed <= available:
        return Finding("memory", "ok", found)
    may_do = at_least is not None and at_least <= available
    return Finding("memory", "warn" if may_do else "fail", found, fix)


def _cache_bytes(situation: Situation) -> int:
    """KV cache that a rank needs; on a GPU vLLM takes smaller blocks, and so a little less."""
    tokens = cache_blocks(situation.engine_options, CPU_BLOCK_SIZE) * CPU_BLOCK_SIZE
    config, architecture = situation.config, situation.architecture
    heads = int(config.get("num_attention_heads") or 1)
    ranks = situation.request.tensor_parallel
    if not architecture.latent_attention:
        width = int(config.get("head_dim") or architecture.hidden_size // heads)
        kv_heads = int(config.get("num_key_value_heads") or heads)
        values = 2 * ceil(kv_heads / ranks) * width
    elif situation.machine.device == "cuda":
        # Every rank holds the latent vectors of all heads.
        values = config["kv_lora_rank"] + config["qk_rope_head_dim"]
    else:
        # There it runs as plain attention, the values as wide as the keys.
        width = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
        values = 2 * ceil(heads / ranks) * width
    return tokens * architecture.num_layers * values * _BYTES


def _step_bytes(situation: Situation) -> int:
    """The captured rows of a step and what its largest layer makes; an estimate."""
    config, hidden = situation.config, situation.architecture.hidden_size
    experts = int(config.get("num_experts_per_tok") or 0)
    units = int(config.get("moe_intermediate_size") or 0) * experts
    units = max(units, int(config.get("intermediate_size") or 4 * hidden))
    row = len(situation.capture_points) * hidden + 8 * hidden
    # Gate and up, and their product.
    row += 3 * units // situation.request.tensor_parallel
    return situation.request.max_tokens_per_step * row * _BYTES
