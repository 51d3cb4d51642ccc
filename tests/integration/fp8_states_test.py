"""What the real engine stores as 8-bit floats is what it stores as bfloat16, encoded."""

from pathlib import Path

import torch

from eagle3.store.encoding import decode, encode
from eagle3.store.row_format import BFLOAT16, FLOAT8
from tests.integration.engines import running_engine
from tests.integration.prompts import random_prompts
from tests.integration.tiny_models import VOCAB_SIZE, make_llama


def test_the_workers_encode_what_they_capture(tmp_path: Path) -> None:
    model = make_llama(tmp_path / "llama")
    prompts = random_prompts([1, 70, 33, 129, 5], VOCAB_SIZE)
    states = {}
    for dtype in (BFLOAT16, FLOAT8):
        with running_engine(model, (8, 0, 3), max_tokens_per_step=64, states_dtype=dtype) as engine:
            states[dtype] = engine.extract(prompts)
    for plain, rounded in zip(states[BFLOAT16], states[FLOAT8], strict=True):
        assert rounded.shape == plain.shape
        assert torch.equal(rounded, decode(encode(plain, FLOAT8), FLOAT8))
        assert not torch.equal(rounded, plain)
