"""The patches of vLLM 0.16.0, in the order they apply."""

VLLM_PATCHES = [
    "//third_party/vllm:patches/01-cpu-rms-norm-kernel.patch",
]
