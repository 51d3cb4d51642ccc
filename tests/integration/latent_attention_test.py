"""DeepSeek-V3 and Kimi-K2.5: latent attention and experts, every capture point.

On the CPU vLLM runs latent attention as plain attention, with the same result.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from eagle3.engine.engine import Engine
from eagle3.engine.options import EngineOptions
from eagle3.errors import InputError
from tests.integration.engines import running_engine
from tests.integration.prompts import random_prompts
from tests.integration.reference import (
    assert_states_match,
    load_kimi_reference,
    load_reference,
    reference_states,
)
from tests.integration.tiny_models import VOCAB_SIZE, make_deepseek_v3, make_kimi_k25


@pytest.mark.parametrize(
    ("make_model", "load", "trust_remote_code"),
    [
        pytest.param(make_deepseek_v3, load_reference, False, id="deepseek-v3"),
        # Its image processor is code in the checkpoint's folder.
        pytest.param(make_kimi_k25, load_kimi_reference, True, id="kimi-k2.5"),
    ],
)
def test_every_capture_point_is_the_references(
    make_model: Callable[[Path], Path],
    load: Callable[[Path, torch.dtype], PreTrainedModel],
    trust_remote_code: bool,
    tmp_path: Path,
) -> None:
    model = make_model(tmp_path / "model")
    prompts = random_prompts((1, 40, 200, 300), VOCAB_SIZE)
    with running_engine(
        model, max_tokens_per_step=256, max_model_len=300, trust_remote_code=trust_remote_code
    ) as engine:
        states = engine.extract(prompts)
    assert_states_match(
        states,
        reference_states(load(model, torch.bfloat16), prompts),
        reference_states(load(model, torch.float32), prompts),
    )


def test_code_of_a_checkpoint_is_not_run_unasked(tmp_path: Path) -> None:
    model = make_kimi_k25(tmp_path / "model")
    [code] = model.glob("*.py")
    ran = tmp_path / "ran"
    code.write_text(f"open({str(ran)!r}, 'w').close()\n{code.read_text()}")
    with pytest.raises(InputError, match="trust_remote_code"):
        Engine(EngineOptions(model, (2,)))
    assert not ran.exists()
