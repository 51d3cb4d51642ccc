"""Qwen3, dense and mixture of experts: every capture point."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.integration.engines import running_engine
from tests.integration.prompts import random_prompts
from tests.integration.reference import assert_states_match, load_reference, reference_states
from tests.integration.tiny_models import VOCAB_SIZE, make_qwen3, make_qwen3_moe


@pytest.mark.parametrize("make_model", [make_qwen3, make_qwen3_moe])
def test_every_capture_point_is_the_references(
    make_model: Callable[[Path], Path], tmp_path: Path
) -> None:
    model = make_model(tmp_path / "model")
    prompts = random_prompts((1, 40, 200, 300), VOCAB_SIZE)
    with running_engine(model, max_tokens_per_step=256, max_model_len=300) as engine:
        states = engine.extract(prompts)
    assert_states_match(
        states,
        reference_states(load_reference(model, torch.bfloat16), prompts),
        reference_states(load_reference(model, torch.float32), prompts),
    )
