"""What vLLM is asked for when it serves; vLLM itself is not started."""

from pathlib import Path

import pytest

from eagle3.engine import serving
from eagle3.engine.architecture import TargetArchitecture
from eagle3.engine.serving import ServingOptions, vllm_options

TARGET = TargetArchitecture("llama", 4, 32, 100, 256, "bfloat16")
DRAFT = Path("/drafts/one")


def test_passes_over_the_same_prompts_cost_the_same() -> None:
    assert vllm_options(ServingOptions(Path("model")), TARGET)["enable_prefix_caching"] is False


def test_a_draft_is_served_with_chains_of_the_length_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "runs_on_cpu", lambda: False)
    options = vllm_options(ServingOptions(Path("model"), DRAFT, 3), TARGET)
    assert options["speculative_config"] == {
        "method": "eagle3",
        "model": str(DRAFT),
        "num_speculative_tokens": 3,
    }
    assert not options["enforce_eager"]
    assert vllm_options(ServingOptions(Path("model"), eager=True), TARGET)["enforce_eager"]
