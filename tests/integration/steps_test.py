"""Steps of any size, many prompts in flight, and memory that does not grow."""

from pathlib import Path

import psutil
import pytest
import torch

from tests.integration.engines import executor_of, record_steps, running_engine
from tests.integration.prompts import random_prompts
from tests.integration.reference import assert_states_match, load_reference, reference_states
from tests.integration.tiny_models import VOCAB_SIZE, make_llama

LENGTHS = (1, 2, 63, 64, 65, 127, 200, 3, 257, 5, 300, 90)
PROMPTS = random_prompts(LENGTHS, VOCAB_SIZE)
POINTS = (8, 0, 3)
ROUND_TOKENS = 12_000


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def references(model: Path) -> list[list[torch.Tensor]]:
    """The states of POINTS in bfloat16 and in float32."""
    return [
        [
            states_TLH[:, list(POINTS)]
            for states_TLH in reference_states(load_reference(model, dtype), PROMPTS)
        ]
        for dtype in (torch.bfloat16, torch.float32)
    ]


@pytest.mark.parametrize(
    ("max_tokens_per_step", "ring_rows"),
    [
        # A ring of two rows is full all the time: steps wait for the disk, and lose nothing.
        pytest.param(64, 2, id="64"),
        pytest.param(1000, 300, id="1000"),
        pytest.param(16384, 100_000, id="16384"),
    ],
)
def test_steps_are_full_and_their_size_and_the_rings_make_no_difference(
    model: Path, references: list[list[torch.Tensor]], max_tokens_per_step: int, ring_rows: int
) -> None:
    with running_engine(
        model,
        POINTS,
        max_tokens_per_step=max_tokens_per_step,
        max_model_len=300,
        ring_bytes=ring_rows * len(POINTS) * 256 * 2,
    ) as engine:
        steps = record_steps(engine)
        states = engine.extract(PROMPTS)
    assert sum(steps) == sum(LENGTHS)
    assert all(tokens == max_tokens_per_step for tokens in steps[:-1])
    assert_states_match(states, *references)


def test_memory_stays_flat(model: Path) -> None:
    prompts = random_prompts([300] * (ROUND_TOKENS // 300), VOCAB_SIZE)
    with running_engine(model, (2, 4, 5, 8), max_tokens_per_step=1024) as engine:
        [worker] = executor_of(engine).workers
        processes = [psutil.Process(), psutil.Process(worker.proc.pid)]
        held = []
        for _ in range(4):
            engine.extract(prompts)
            held.append(sum(process.memory_info().rss for process in processes))
    # The rows of a round are 24 MB; what is kept of them would show threefold.
    assert held[3] - held[1] < 20 * 1024**2, held
