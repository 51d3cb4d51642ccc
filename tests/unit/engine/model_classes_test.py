"""A target's class is asked in this process, and on a GPU in one of its own."""

from pathlib import Path
from typing import Any

import pytest
from vllm.model_executor.models import registry

from eagle3.engine import model_classes
from eagle3.engine.model_classes import look_at_models_here


class AskedElsewhereError(Exception):
    """A process was to be started."""


@pytest.fixture(autouse=True)
def _nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AskedElsewhereError

    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    monkeypatch.setattr(registry.subprocess, "run", refuse)
    # Whatever is put in its place goes with the test.
    monkeypatch.setattr(registry, "_run_in_subprocess", registry._run_in_subprocess)


def test_without_a_gpu_no_process_is_started(tmp_path: Path) -> None:
    look_at_models_here()
    asked = registry.ModelRegistry.models["LlamaForCausalLM"].inspect_model_cls()
    assert asked.architecture == "LlamaForCausalLM"
    assert asked.is_text_generation_model
    assert asked.supports_pp
    assert not asked.supports_multimodal
    # The next one finds what this one has found.
    assert list(tmp_path.glob("modelinfos/*LlamaForCausalLM.json"))


def test_a_gpus_process_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_classes, "runs_on_cpu", lambda: False)
    look_at_models_here()
    with pytest.raises(AskedElsewhereError):
        registry.ModelRegistry.models["Qwen3ForCausalLM"].inspect_model_cls()
