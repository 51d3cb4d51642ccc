"""How far the prompts of a step were computed before it, told to latent attention by the host.

vLLM 0.16.0 reads these counts back from the GPU (MLACommonMetadataBuilder.build): where tokens are
drafted and sampled, a host that runs ahead does not know them. The read waits for the step before,
and then in line with that step's captured rows for the way to the host, while the GPU stands still:
a tenth of the time at Kimi-K2.5's width. Prompts hold no surprise, so the host's own counts are
right.
"""

import functools
from typing import Any


def know_counts_on_host() -> None:
    """Has latent attention take the host's counts, in this process, which must only run prompts."""
    from vllm.model_executor.layers.attention.mla_attention import MLACommonMetadataBuilder

    build = MLACommonMetadataBuilder.build
    if not hasattr(build, "__wrapped__"):
        MLACommonMetadataBuilder.build = _with_counts_of_host(build)


def _with_counts_of_host(build: Any) -> Any:
    @functools.wraps(build)
    def build_with_counts(
        builder: Any, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False
    ) -> Any:
        # What compute_num_computed_tokens() returns; kinds of attention beside this one want it on
        # the GPU.
        common_attn_metadata._num_computed_tokens_cache = (
            common_attn_metadata._num_computed_tokens_cpu
        )
        try:
            return build(builder, common_prefix_len, common_attn_metadata, fast_build)
        finally:
            common_attn_metadata._num_computed_tokens_cache = None

    return build_with_counts
