"""What the installed vLLM can run, read from its files: importing it takes seconds."""

import ast
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_REGISTRY = "model_executor/models/registry.py"
_ARCHITECTURE_TABLES = {"_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS"}
_QUANTIZATION = "model_executor/layers/quantization/__init__.py"
_LIBRARIES = (
    ("torch", "lib/libtorch_cuda.so"),
    ("vllm", "_C.abi3.so"),
    ("vllm", "_moe_C.abi3.so"),
    ("vllm", "vllm_flash_attn/_vllm_fa2_C.abi3.so"),
    ("vllm", "vllm_flash_attn/_vllm_fa3_C.abi3.so"),
    ("vllm", "_flashmla_C.abi3.so"),
)


@cache
def supported_architectures() -> frozenset[str]:
    """The names in `architectures` of a config.json that vLLM has a model for."""
    return frozenset(
        key.value
        for node in ast.walk(_parse(_REGISTRY))
        if isinstance(node, ast.Assign)
        and any(
            isinstance(name, ast.Name) and name.id in _ARCHITECTURE_TABLES for name in node.targets
        )
        and isinstance(node.value, ast.Dict)
        for key in node.value.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    )


@cache
def quantization_methods() -> frozenset[str]:
    """The values of `quant_method` of a config.json that vLLM knows."""
    return frozenset(
        method.value
        for node in _parse(_QUANTIZATION).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "QuantizationMethods"
        for method in ast.walk(node.value)
        if isinstance(method, ast.Constant) and isinstance(method.value, str)
    )


def gpu_libraries() -> dict[str, Path]:
    """The installed libraries with GPU code that running a target needs, by a short name."""
    paths = {f"{package}/{name}": _folder(package) / name for package, name in _LIBRARIES}
    return {name: path for name, path in paths.items() if path.exists()}


def loading_order(files: list[Path]) -> list[Path]:
    """Files of weights in the order in which vLLM reads them: 2 before 10.

    Source: vllm/model_executor/model_loader/weight_utils.py (0.16.0), _natural_sort_key.
    """
    return sorted(
        files,
        key=lambda path: [
            int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)
        ],
    )


def _folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _parse(name: str) -> ast.Module:
    return ast.parse((_folder("vllm") / name).read_text(encoding="utf-8"))
