"""Two ranks give the states of one, whoever of them writes."""

from pathlib import Path

import pytest
import torch

from tests.integration.engines import running_engine
from tests.integration.prompts import random_prompts
from tests.integration.reference import (
    WORST_COSINE,
    assert_states_match,
    load_reference,
    reference_states,
)
from tests.integration.tiny_models import VOCAB_SIZE, make_llama

PROMPTS = random_prompts((1, 2, 40, 200, 255, 300), VOCAB_SIZE)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def written_by_both(model: Path) -> list[torch.Tensor]:
    return run(model, ranks=2, writing_ranks=2)


def run(model: Path, ranks: int, writing_ranks: int) -> list[torch.Tensor]:
    with running_engine(
        model,
        tensor_parallel=ranks,
        writing_ranks=writing_ranks,
        max_tokens_per_step=256,
        max_model_len=300,
    ) as engine:
        return engine.extract(PROMPTS)


def test_every_capture_point_of_two_ranks_is_the_references(
    model: Path, written_by_both: list[torch.Tensor]
) -> None:
    assert_states_match(
        written_by_both,
        reference_states(load_reference(model, torch.bfloat16), PROMPTS),
        reference_states(load_reference(model, torch.float32), PROMPTS),
    )


def test_two_ranks_give_the_rows_of_one(model: Path, written_by_both: list[torch.Tensor]) -> None:
    alone = run(model, ranks=1, writing_ranks=1)
    for prompt, (one, two) in enumerate(zip(alone, written_by_both, strict=True)):
        cosine_TL = torch.nn.functional.cosine_similarity(one.float(), two.float(), dim=-1)
        assert cosine_TL.min() > WORST_COSINE["bfloat16"], f"prompt {prompt}"


def test_one_rank_writes_what_two_write(model: Path, written_by_both: list[torch.Tensor]) -> None:
    by_one = run(model, ranks=2, writing_ranks=1)
    for prompt, (one, two) in enumerate(zip(by_one, written_by_both, strict=True)):
        assert torch.equal(one, two), f"prompt {prompt}"
