"""What vLLM can run is known without importing it."""

import subprocess
import sys
from pathlib import Path

import pytest

from eagle3.engine import installed
from eagle3.engine.installed import (
    gpu_libraries,
    loading_order,
    quantization_methods,
    supported_architectures,
)


def test_architectures_are_those_of_text_and_of_multimodal_targets() -> None:
    known = supported_architectures()
    assert {"LlamaForCausalLM", "DeepseekV3ForCausalLM", "GptOssForCausalLM"} <= known
    assert "KimiK25ForConditionalGeneration" in known
    # Models that speculate are no targets.
    assert "Eagle3LlamaForCausalLM" not in known


def test_quantisation_methods_are_known_by_name() -> None:
    assert {"compressed-tensors", "fp8", "mxfp4", "awq"} <= quantization_methods()


def test_vllm_is_not_imported_for_it() -> None:
    code = (
        "import sys; from eagle3.engine import installed;"
        "installed.supported_architectures(); installed.quantization_methods();"
        "print({'vllm', 'torch'} & sys.modules.keys())"
    )
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "set()"


def test_files_come_in_the_order_of_their_numbers() -> None:
    names = ["model-10-of-12.safetensors", "model-9-of-12.safetensors", "a.safetensors"]
    ordered = loading_order([Path("/models", name) for name in names])
    assert [path.name for path in ordered] == [names[2], names[1], names[0]]


def test_only_libraries_that_are_there_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "_C.abi3.so").touch()
    monkeypatch.setattr(installed, "_folder", lambda package: tmp_path)
    assert gpu_libraries() == {"vllm/_C.abi3.so": tmp_path / "_C.abi3.so"}
