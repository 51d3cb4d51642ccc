"""The CUDA 12.8 stack, on a machine that need not have a GPU."""

import importlib.util
from importlib.metadata import version

import eagle3_stack
import pytest
import torch
import vllm


def test_the_stack_is_the_cuda_one() -> None:
    assert eagle3_stack.STACK == "cuda128"
    assert torch.version.cuda == "12.8"


def test_versions_are_the_pinned_ones() -> None:
    versions = eagle3_stack.VERSIONS
    assert vllm.__version__ == versions["vllm"] == "0.16.0"
    assert torch.__version__.split("+")[0] == versions["torch"] == "2.9.1"
    assert version("speculators") == versions["speculators"] == "0.3.0"


def test_speculators_imports_with_the_engine() -> None:
    assert importlib.import_module("speculators.data_generation.custom_worker")


def test_torch_has_code_for_hopper_and_blackwell() -> None:
    built_for = torch._C._cuda_getArchFlags()
    assert built_for
    assert {"sm_90", "sm_100", "sm_120"} <= set(built_for.split())


@pytest.mark.parametrize("kernels", ["vllm._C", "vllm._moe_C", "vllm.vllm_flash_attn"])
def test_the_kernels_are_there(kernels: str) -> None:
    """Found, not loaded: they need libcuda.so.1, which only a GPU driver brings."""
    assert importlib.util.find_spec(kernels)
