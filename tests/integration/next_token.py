"""The next token that the running target itself would choose after a prompt."""

from collections.abc import Sequence
from typing import Any

import torch

from eagle3.engine.engine import Engine
from tests.integration.engines import executor_of


def extract_with_next_tokens(
    engine: Engine, prompts: Sequence[Sequence[int]]
) -> tuple[list[torch.Tensor], list[int]]:
    """What `Engine.extract` gives, and the token with the highest logit after each prompt."""
    executor = executor_of(engine)
    executor.collective_rpc(_record_next_tokens)
    # Requests are numbered from the first that the engine runs.
    first = next(engine._numbers) + 1
    states = engine.extract(prompts)
    chosen = executor.collective_rpc(_recorded_next_tokens)[0]
    return states, [chosen[f"request-{first + index}"] for index in range(len(prompts))]


def _record_next_tokens(wrapper: Any) -> None:
    """Puts the head back that extraction leaves out."""
    worker = wrapper.worker
    worker.recorded_next_tokens = {}
    model = worker.model_runner.get_model()

    def record(hidden_states_RH: torch.Tensor) -> None:
        # One row a request, that of its last token in the step: a later step overwrites it.
        tokens = type(model).compute_logits(model, hidden_states_RH).argmax(dim=-1).tolist()
        requests = worker.model_runner.input_batch.req_ids
        worker.recorded_next_tokens.update(zip(requests, tokens, strict=True))

    model.compute_logits = record


def _recorded_next_tokens(wrapper: Any) -> dict[str, int]:
    return wrapper.worker.recorded_next_tokens
