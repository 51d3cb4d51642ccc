"""GPU code in the CUDA image: what the reference run needs on Blackwell, as machine code or PTX."""

import os
from pathlib import Path

import pytest
from runfiles import Runfiles

ROWS = Path(os.environ["KERNELS"]).read_text().splitlines()
TABLE = {
    cells[0].strip("` "): dict(zip(("80", "90", "100", "120"), cells[1:], strict=True))
    for row in ROWS[2:]
    if (cells := [cell.strip() for cell in row.strip("|").split("|")])
}


@pytest.mark.parametrize("architecture", ["100", "120"])
@pytest.mark.parametrize(
    "library",
    [
        "nvidia/cublas/lib/libcublas.so.12",
        "nvidia/cublas/lib/libcublasLt.so.12",
        "nvidia/nccl/lib/libnccl.so.2",
        "torch/lib/libtorch_cuda.so",
        "vllm/_C.abi3.so",
    ],
)
def test_machine_code_for_blackwell(library: str, architecture: str) -> None:
    assert TABLE[library][architecture].startswith("SASS")


@pytest.mark.parametrize("architecture", ["100", "120"])
@pytest.mark.parametrize(
    ("library", "what"),
    [
        ("vllm/_moe_C.abi3.so", "Marlin's mixture of experts"),
        ("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", "prefill of latent attention"),
    ],
)
def test_what_the_driver_compiles_is_listed(library: str, what: str, architecture: str) -> None:
    """Without PTX these would not run at all; with it they need a driver of CUDA 12.9."""
    assert "PTX" in TABLE[library][architecture], what


def test_the_document_has_this_table() -> None:
    runfiles = Runfiles.Create()
    document = runfiles.Rlocation("eagle3_training/docs/images.md") if runfiles else None
    assert document
    text = Path(document).read_text(encoding="utf-8")
    assert [row for row in ROWS if row not in text] == []
