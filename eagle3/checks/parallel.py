"""Whether the target can be divided among the tensor-parallel ranks."""

from collections.abc import Iterator

from eagle3.checks.finding import Finding
from eagle3.checks.situation import Situation

# What vLLM 0.16.0 divides among the ranks without a rest.
_DIVIDED = (
    ("num_attention_heads", "attention heads"),
    ("intermediate_size", "units of the MLP"),
    ("moe_intermediate_size", "units of an expert"),
)
# vllm/model_executor/layers/vocab_parallel_embedding.py, DEFAULT_VOCAB_PADDING_SIZE
_VOCABULARY_PADDING = 64


def check_parallel(situation: Situation) -> Iterator[Finding]:
    """Heads, KV heads, units, groups of quantised weights and the vocabulary against --tp."""
    ranks = situation.request.tensor_parallel
    rests = _rests(situation, ranks)
    if ranks == 1:
        yield Finding("parallel", "ok", "one rank, nothing to divide")
    elif rests:
        possible = max(fewer for fewer in range(1, ranks) if not _rests(situation, fewer))
        found = f"{', '.join(rests)} cannot be divided among {ranks} ranks"
        yield Finding("parallel", "fail", found, f"give another --tp, such as {possible}")
    else:
        named = ", ".join(f"{number:,} {what}" for what, number in _divided(situation))
        yield Finding("parallel", "ok", f"{ranks} ranks divide {named}")


def _divided(situation: Situation) -> Iterator[tuple[str, int]]:
    for key, what in _DIVIDED:
        number = situation.config.get(key)
        if isinstance(number, int):
            yield what, number
    blocks = -(-situation.architecture.vocab_size // _VOCABULARY_PADDING)
    yield "rows of the vocabulary", blocks * _VOCABULARY_PADDING


def _rests(situation: Situation, ranks: int) -> list[str]:
    """What cannot be divided, in words; nothing for one rank."""
    config = situation.config
    rests = [f"{number:,} {what}" for what, number in _divided(situation) if number % ranks]
    kv_heads = config.get("num_key_value_heads")
    # More ranks than KV heads hold copies.
    if isinstance(kv_heads, int) and max(kv_heads, ranks) % min(kv_heads, ranks):
        rests.append(f"{kv_heads} KV heads")
    group = _group_size(situation)
    units = config.get("moe_intermediate_size") or config.get("intermediate_size")
    if ranks > 1 and group and units and units % ranks == 0 and units // ranks % group:
        rests.append(f"{units // ranks:,} units a rank, of which {group} share a scale,")
    return rests


def _group_size(situation: Situation) -> int | None:
    """Weights that share a scale, along the side that is divided."""
    groups = situation.quantization.get("config_groups") or {}
    sizes = [(group.get("weights") or {}).get("group_size") for group in groups.values()]
    return next((size for size in sizes if size), situation.quantization.get("group_size"))
