"""The patches of vLLM 0.16.0, in the order they apply."""

VLLM_PATCHES = [
    "//third_party/vllm:patches/01-deepseek-auxiliary-states.patch",
    "//third_party/vllm:patches/02-kimi-auxiliary-states.patch",
    "//third_party/vllm:patches/03-eagle3-for-deepseek-and-kimi.patch",
    "//third_party/vllm:patches/04-image-token-of-kimi.patch",
    "//third_party/vllm:patches/05-llama-state-after-the-last-layer.patch",
    "//third_party/vllm:patches/06-attention-without-amx-kernels.patch",
]
