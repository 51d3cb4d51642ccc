"""Batches that used to lose or mix up rows.

The same call again gives equal rows, bit for bit. A prompt alone and the same prompt in a batch do
too on the processors tried (Zen 4), but nothing promises it: matrix kernels may choose their blocks
by the number of rows in a step, and then sums round in another order. So there a row must be as
near to its twin as bfloat16 can tell, and nearer to it than to any other row.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from eagle3.engine.engine import Engine
from eagle3.errors import EngineError, InputError
from tests.integration.engines import running_engine, scheduled_prompts
from tests.integration.prompts import random_prompts
from tests.integration.reference import assert_states_match, load_reference, reference_states
from tests.integration.tiny_models import VOCAB_SIZE, make_llama

# Out of order on purpose, with both ends.
POINTS = (8, 0, 5, 2)
STEP = 256
LONGEST = 600


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[Engine]:
    with running_engine(model, POINTS, max_tokens_per_step=STEP, max_model_len=LONGEST) as engine:
        yield engine


def _assert_reference(
    model: Path, prompts: Sequence[Sequence[int]], states: Sequence[torch.Tensor]
) -> None:
    points = list(POINTS)
    bfloat16, float32 = (
        [
            hidden_states_TLH[:, points]
            for hidden_states_TLH in reference_states(load_reference(model, dtype), prompts)
        ]
        for dtype in (torch.bfloat16, torch.float32)
    )
    assert_states_match(states, bfloat16, float32)


def _assert_equal(states: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> None:
    assert len(states) == len(others)
    for prompt, (one, other) in enumerate(zip(states, others, strict=True)):
        assert torch.equal(one, other), f"prompt {prompt}"


def test_more_prompts_than_one_step_takes(engine: Engine, model: Path) -> None:
    # 45 is more than the prompts of one step, and more than ten: request ids do not sort.
    prompts = random_prompts([1 + 7 * n % 40 for n in range(45)], VOCAB_SIZE)
    _assert_reference(model, prompts, engine.extract(prompts))


def test_shared_prefixes_and_duplicates(engine: Engine, model: Path) -> None:
    first, other = random_prompts((200, 100), VOCAB_SIZE)
    prompts = [first, list(first), first[:160] + other, first[:64], other, first[:1]]
    _assert_reference(model, prompts, engine.extract(prompts))


def test_prompts_longer_than_a_step_among_short_ones(engine: Engine, model: Path) -> None:
    prompts = random_prompts((3, LONGEST, 1, STEP + 1, STEP, 5, LONGEST, 2), VOCAB_SIZE)
    _assert_reference(model, prompts, engine.extract(prompts))


def test_a_repeated_call_gives_equal_rows(engine: Engine) -> None:
    prompts = random_prompts((30, 300, 30, 1, 64), VOCAB_SIZE)
    _assert_equal(engine.extract(prompts), engine.extract(prompts))


def test_a_batch_gives_the_rows_of_single_calls(engine: Engine) -> None:
    prompts = random_prompts((1, 5, 31, 32, 33, 64, 200, STEP, 400), VOCAB_SIZE)
    batched = engine.extract(prompts)
    alone = [engine.extract([prompt])[0] for prompt in prompts]
    for one, other in zip(batched, alone, strict=True):
        assert one.shape == other.shape
        cosine_TL = torch.nn.functional.cosine_similarity(one.float(), other.float(), dim=-1)
        assert cosine_TL.min() > 0.997
    # Every row of every prompt finds itself among all rows of the single calls.
    rows_RLH, twins_RLH = torch.cat(batched).float(), torch.cat(alone).float()
    for layer in range(len(POINTS)):
        distance_RR = torch.cdist(rows_RLH[:, layer], twins_RLH[:, layer])
        own_R = distance_RR.diagonal()
        assert (own_R <= distance_RR.amin(dim=1) + 1e-6).all()


def test_a_prompt_that_cannot_run_is_named_and_nothing_is_left(engine: Engine) -> None:
    good = random_prompts((40, 50, 60), VOCAB_SIZE)
    before = engine.extract(good)
    for bad, message in (
        ([], "prompt 1 has no tokens"),
        ([5] * (LONGEST + 1), "prompt 1 has 601 tokens"),
        ([5, VOCAB_SIZE], "prompt 1 has a token id outside"),
        ([5, -1], "prompt 1 has a token id outside"),
    ):
        with pytest.raises(InputError, match=message):
            engine.extract([good[0], bad, good[2]])
        assert not scheduled_prompts(engine)
    _assert_equal(before, engine.extract(good))


def test_a_failure_while_running_leaves_the_next_call_whole(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = random_prompts((40, 300, 60), VOCAB_SIZE)
    before = engine.extract(good)
    with monkeypatch.context() as unchecked:
        unchecked.setattr("eagle3.engine.engine.Engine._check_prompt", lambda *_: None)
        with pytest.raises(EngineError, match="index out of range") as failure:
            # The failing prompt comes in the second step; the third is still queued.
            engine.extract([good[1], [VOCAB_SIZE + 9] * 20, *good])
    assert "\n" not in str(failure.value)
    assert not scheduled_prompts(engine)
    _assert_equal(before, engine.extract(good))


def test_no_prompts_give_no_states(engine: Engine) -> None:
    assert engine.extract([]) == []
