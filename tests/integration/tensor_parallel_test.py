"""Two ranks give the states of one, whoever of them writes."""

from pathlib import Path

import torch

from tests.integration.engines import running_engine
from tests.integration.prompts import random_prompts
from tests.integration.reference import assert_states_match, load_reference, reference_states
from tests.integration.tiny_models import VOCAB_SIZE, make_llama


def test_every_capture_point_of_two_ranks_is_the_references(tmp_path: Path) -> None:
    model = make_llama(tmp_path / "llama")
    prompts = random_prompts((1, 40, 200, 300), VOCAB_SIZE)
    with running_engine(
        model, tensor_parallel=2, max_tokens_per_step=256, max_model_len=300
    ) as engine:
        states = engine.extract(prompts)
    assert_states_match(
        states,
        reference_states(load_reference(model, torch.bfloat16), prompts),
        reference_states(load_reference(model, torch.float32), prompts),
    )


def test_one_rank_writes_what_two_write(tmp_path: Path) -> None:
    model = make_llama(tmp_path / "llama")
    prompts = random_prompts((1, 2, 40, 255, 300), VOCAB_SIZE)
    by_writers = []
    for writing_ranks in (1, 2):
        with running_engine(
            model,
            tensor_parallel=2,
            writing_ranks=writing_ranks,
            max_tokens_per_step=256,
            max_model_len=300,
        ) as engine:
            by_writers.append(engine.extract(prompts))
    for prompt, (one, two) in enumerate(zip(*by_writers, strict=True)):
        assert torch.equal(one, two), f"prompt {prompt}"
