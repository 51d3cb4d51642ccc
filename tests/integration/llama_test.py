"""Llama: every capture point, and the next token."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from eagle3.engine.engine import Engine
from tests.integration.engines import running_engine
from tests.integration.next_token import extract_with_next_tokens
from tests.integration.prompts import random_prompts
from tests.integration.reference import assert_states_match, load_reference, reference_states
from tests.integration.tiny_models import NUM_LAYERS, VOCAB_SIZE, make_llama

# One step takes 256 tokens: the longest prompt runs in three, the shortest share one.
LENGTHS = (1, 2, 17, 128, 129, 255, 256, 257, 600)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[Engine]:
    with running_engine(model, max_tokens_per_step=256, max_model_len=600) as engine:
        yield engine


def test_every_capture_point_is_the_references(engine: Engine, model: Path) -> None:
    prompts = random_prompts(LENGTHS, VOCAB_SIZE)
    assert_states_match(
        engine.extract(prompts),
        reference_states(load_reference(model, torch.bfloat16), prompts),
        reference_states(load_reference(model, torch.float32), prompts),
    )


def test_last_point_gives_the_targets_next_token(engine: Engine, model: Path) -> None:
    prompts = random_prompts([*range(1, 40), 300], VOCAB_SIZE, seed=1)
    states, next_tokens = extract_with_next_tokens(engine, prompts)
    reference = load_reference(model, torch.bfloat16)
    last_BH = torch.stack([states_TLH[-1, NUM_LAYERS] for states_TLH in states])
    with torch.no_grad():
        tokens = reference.lm_head(reference.model.norm(last_BH)).argmax(dim=-1).tolist()
        without_norm = reference.lm_head(last_BH).argmax(dim=-1).tolist()
    assert tokens == next_tokens
    assert without_norm != next_tokens
