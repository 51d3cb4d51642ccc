"""The parity gate: what a draft is trained on is what it is handed when it is served.

The states of extraction at a draft's capture points are those that vLLM's own models give under
the same numbers. One layer off, and a draft trains well and accepts next to nothing.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.integration.auxiliary_states import auxiliary_states
from tests.integration.engines import running_engine
from tests.integration.prompts import random_prompts
from tests.integration.tiny_models import (
    NUM_LAYERS,
    VOCAB_SIZE,
    make_deepseek_v3,
    make_kimi_k25,
    make_llama,
    make_qwen3,
)

# The kernels may differ by their place in a step; a neighbouring layer gives below 0.98.
WORST_COSINE = 0.9995


@pytest.mark.parametrize(
    ("make_model", "last_point"),
    [
        pytest.param(make_llama, NUM_LAYERS, id="llama"),
        # vLLM does not hand out what comes after the last layer of the others.
        pytest.param(make_qwen3, NUM_LAYERS - 1, id="qwen3"),
        pytest.param(make_deepseek_v3, NUM_LAYERS, id="deepseek-v3"),
        pytest.param(make_kimi_k25, NUM_LAYERS, id="kimi-k2.5"),
    ],
)
def test_a_draft_is_served_the_states_of_extraction(
    make_model: Callable[[Path], Path], last_point: int, tmp_path: Path
) -> None:
    model = make_model(tmp_path / "model")
    points = tuple(range(1, last_point + 1))
    prompts = random_prompts((1, 40, 200), VOCAB_SIZE)
    kimi = make_model is make_kimi_k25
    with running_engine(model, points, max_model_len=512, trust_remote_code=kimi) as engine:
        extracted = engine.extract(prompts)
    served = auxiliary_states(model, points, prompts)
    for ours_TLH, theirs_TLH in zip(extracted, served, strict=True):
        assert theirs_TLH.shape == ours_TLH.shape
        cosine_TL = torch.nn.functional.cosine_similarity(
            ours_TLH.float(), theirs_TLH.float(), dim=-1
        )
        assert cosine_TL.min() > WORST_COSINE, cosine_TL.amin(dim=0).tolist()
