"""Two ranks give the states of one, whoever of them writes."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch

from eagle3.engine.engine import Engine
from eagle3.errors import EngineError
from tests.integration.engines import executor_of, running_engine, worker_processes
from tests.integration.prompts import random_prompts
from tests.integration.reference import (
    WORST_COSINE,
    assert_states_match,
    load_reference,
    reference_states,
)
from tests.integration.tiny_models import VOCAB_SIZE, make_llama

# It takes a few; the rank that hangs would keep everybody for an hour.
MOST_SECONDS_TO_AN_ERROR = 60
PROMPTS = random_prompts((1, 2, 40, 200, 255, 300), VOCAB_SIZE)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("models") / "llama")


def running(model: Path, ranks: int, writing_ranks: int) -> AbstractContextManager[Engine]:
    return running_engine(
        model,
        tensor_parallel=ranks,
        writing_ranks=writing_ranks,
        max_tokens_per_step=256,
        max_model_len=300,
    )


@pytest.fixture(scope="module")
def two_ranks(model: Path) -> Iterator[Engine]:
    """For the first two tests; the others start engines of their own, one at a time."""
    with running(model, ranks=2, writing_ranks=2) as engine:
        yield engine


def run_alone(model: Path, two_ranks: Engine, ranks: int, writing_ranks: int) -> list[torch.Tensor]:
    two_ranks.close()
    with running(model, ranks, writing_ranks) as engine:
        return engine.extract(PROMPTS)


@pytest.fixture(scope="module")
def written_by_both(two_ranks: Engine) -> list[torch.Tensor]:
    return two_ranks.extract(PROMPTS)


def test_every_capture_point_of_two_ranks_is_the_references(
    model: Path, written_by_both: list[torch.Tensor]
) -> None:
    assert_states_match(
        written_by_both,
        reference_states(load_reference(model, torch.bfloat16), PROMPTS),
        reference_states(load_reference(model, torch.float32), PROMPTS),
    )


def test_a_killed_rank_is_told_soon_though_another_hears_no_signal(two_ranks: Engine) -> None:
    """The last test of this engine: a rank that waits in a driver for another one must go, too."""
    executor = executor_of(two_ranks)
    executor.collective_rpc(_hang_on_the_first_rank)
    threading.Timer(1.0, os.kill, (executor.workers[1].proc.pid, signal.SIGKILL)).start()
    began = time.monotonic()
    with pytest.raises(EngineError, match=r"a step of prompt 0 and .*: a worker process died"):
        two_ranks.extract(PROMPTS)
    assert worker_processes() == []
    assert time.monotonic() - began < MOST_SECONDS_TO_AN_ERROR


def _hang_on_the_first_rank(worker: Any) -> None:
    from vllm.distributed import get_tp_group

    def hang(_: object) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        time.sleep(3600)

    if get_tp_group().rank_in_group == 0:
        worker.worker.execute_model = hang


def test_two_ranks_give_the_rows_of_one(
    model: Path, two_ranks: Engine, written_by_both: list[torch.Tensor]
) -> None:
    alone = run_alone(model, two_ranks, ranks=1, writing_ranks=1)
    for prompt, (one, two) in enumerate(zip(alone, written_by_both, strict=True)):
        cosine_TL = torch.nn.functional.cosine_similarity(one.float(), two.float(), dim=-1)
        assert cosine_TL.min() > WORST_COSINE["bfloat16"], f"prompt {prompt}"


def test_one_rank_writes_what_two_write(
    model: Path, two_ranks: Engine, written_by_both: list[torch.Tensor]
) -> None:
    by_one = run_alone(model, two_ranks, ranks=2, writing_ranks=1)
    for prompt, (one, two) in enumerate(zip(by_one, written_by_both, strict=True)):
        assert torch.equal(one, two), f"prompt {prompt}"
