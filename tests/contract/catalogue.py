"""All contracts, and the packages that are bound by them."""

import importlib.util
from pathlib import Path

from tests.contract import (
    speculators_contracts,
    transformers_contracts,
    vllm_benchmark_contracts,
    vllm_files_contracts,
    vllm_generation_contracts,
    vllm_model_contracts,
    vllm_run_contracts,
    vllm_serving_contracts,
    vllm_setup_contracts,
)
from tests.contract.contract import Contract
from tests.contract.source import Source

CONTRACTS: tuple[Contract, ...] = (
    *vllm_setup_contracts.CONFIGURATION,
    *vllm_setup_contracts.PLATFORM,
    *vllm_files_contracts.FILES,
    *vllm_run_contracts.COUNTS,
    *vllm_run_contracts.SCHEDULING,
    *vllm_run_contracts.EXECUTION,
    *vllm_benchmark_contracts.BENCHMARK,
    *vllm_generation_contracts.GENERATING,
    *vllm_model_contracts.STACKS,
    *vllm_model_contracts.SERVING,
    *vllm_serving_contracts.FRONT_END,
    *vllm_serving_contracts.COUNTERS,
    *vllm_serving_contracts.PROPOSING,
    *vllm_serving_contracts.PATCHED,
    *speculators_contracts.GENERATION,
    *speculators_contracts.EXPORT,
    *speculators_contracts.TRAINING,
    *transformers_contracts.STATES,
)

PACKAGES = tuple(sorted({contract.package for contract in CONTRACTS}))


def installed() -> Source:
    """The source of the packages as this interpreter would import them, without doing so."""
    specs = {name: importlib.util.find_spec(name) for name in PACKAGES}
    return Source(
        {
            name: Path(spec.origin).parent
            for name, spec in specs.items()
            if spec is not None and spec.origin is not None
        }
    )
