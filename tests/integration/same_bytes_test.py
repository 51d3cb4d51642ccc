"""With a dense target that computes in float32, the stored bytes are the same however it is run."""

import random
from pathlib import Path

import pytest
import torch

from tests.integration.engines import running_engine
from tests.integration.prompts import random_prompts
from tests.integration.tiny_models import VOCAB_SIZE, make_llama

POINTS = (8, 0, 3)
PROMPTS = random_prompts([1, 2, 63, 64, 65, 127, 200, 3, 257, 5, 300, 90], VOCAB_SIZE)
ALL_IN_ONE_STEP = 16384
ORDER = random.Random(0).sample(range(len(PROMPTS)), len(PROMPTS))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def in_two_orders(model: Path) -> list[torch.Tensor]:
    """The rows of the prompts, and of the prompts in another order."""
    shuffled = [PROMPTS[place] for place in ORDER]
    return run(model, PROMPTS, shuffled, max_tokens_per_step=ALL_IN_ONE_STEP)


@pytest.fixture(scope="module")
def expected(in_two_orders: list[torch.Tensor]) -> torch.Tensor:
    return in_two_orders[0]


def run(model: Path, *calls: list[list[int]], **options: int) -> list[torch.Tensor]:
    """The rows of each call of one engine."""
    with running_engine(
        model, POINTS, max_model_len=300, compute_dtype="float32", **options
    ) as engine:
        return [torch.cat(engine.extract(prompts)) for prompts in calls]


@pytest.mark.parametrize("max_tokens_per_step", [64, 1000])
def test_whatever_the_size_of_steps(
    model: Path, expected: torch.Tensor, max_tokens_per_step: int
) -> None:
    [found] = run(model, PROMPTS, max_tokens_per_step=max_tokens_per_step)
    assert torch.equal(found, expected)


def test_whatever_the_order_of_prompts(in_two_orders: list[torch.Tensor]) -> None:
    expected, found = in_two_orders
    parts = dict(zip(ORDER, found.split([len(PROMPTS[place]) for place in ORDER]), strict=True))
    assert torch.equal(torch.cat([parts[place] for place in range(len(PROMPTS))]), expected)


def test_two_ranks_round_another_way_now_and_then(model: Path, expected: torch.Tensor) -> None:
    [found] = run(model, PROMPTS, max_tokens_per_step=ALL_IN_ONE_STEP, tensor_parallel=2)
    # Each rank sums a half of every row, so the last digit of bf16 can fall the other way.
    differs = found != expected
    assert differs.float().mean() < 0.002
    assert (found.float() - expected.float()).abs().max() <= 2**-7 * expected.float().abs().max()
    same = torch.isclose(found.float(), expected.float(), rtol=2**-7, atol=1e-3)
    assert same.all()
