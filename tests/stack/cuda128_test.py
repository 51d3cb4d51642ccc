"""The CUDA 12.8 stack, on a machine that need not have a GPU."""

import importlib.util
from importlib.metadata import version

import eagle3_stack
import pytest
import torch
import vllm

from eagle3.checks.fatbin import read_gpu_code
from eagle3.engine.installed import gpu_libraries


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


@pytest.mark.parametrize(
    ("library", "parts", "hopper", "blackwell"),
    [
        ("torch/lib/libtorch_cuda.so", 397, 397, 397),
        ("vllm/_C.abi3.so", 106, 59, 47),
        ("vllm/_moe_C.abi3.so", 33, 6, 6),
        ("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", 60, 0, 0),
        ("vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so", 222, 222, 0),
        ("vllm/_flashmla_C.abi3.so", 22, 22, 22),
    ],
)
def test_what_is_machine_code_is_as_docs_preflight_says(
    library: str, parts: int, hopper: int, blackwell: int
) -> None:
    units = read_gpu_code(gpu_libraries()[library])
    assert len(units) == parts
    for capability, native in (((9, 0), hopper), ((10, 0), blackwell)):
        found = [
            unit
            for unit in units
            if any(code.kind == "sass" and code.runs_on(capability) for code in unit)
        ]
        assert len(found) == native
    # PTX of CUDA 12.9, which a driver of CUDA 12.8 does not know.
    assert {code.version for unit in units for code in unit if code.kind == "ptx"} <= {(8, 8)}
