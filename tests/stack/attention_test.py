"""Which of vLLM's attention kernels a CPU is given."""

import pytest
import torch
from vllm.v1.attention.backends.cpu_attn import _get_attn_isa


@pytest.mark.parametrize("amx", [False, True])
def test_the_kernels_are_those_of_the_build_whatever_the_processor_has(
    monkeypatch: pytest.MonkeyPatch, amx: bool
) -> None:
    monkeypatch.setattr(torch._C._cpu, "_is_amx_tile_supported", lambda: amx)
    assert _get_attn_isa(torch.bfloat16, block_size=128, head_size=64) == "vec"


def test_a_build_that_has_them_uses_amx_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C._cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.setattr(torch.ops._C, "prepack_moe_weight", object(), raising=False)
    assert _get_attn_isa(torch.bfloat16, block_size=128, head_size=64) == "amx"
