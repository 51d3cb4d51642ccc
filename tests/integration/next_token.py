"""The next token that the running target itself chooses after a prompt."""

from collections.abc import Sequence
from typing import Any

from eagle3.engine.engine import Engine
from tests.integration.engines import generator_of


def extract_with_next_tokens(
    engine: Engine, prompts: Sequence[Sequence[int]]
) -> tuple[list[Any], list[int]]:
    """What `Engine.extract` gives, and the greedy token that vLLM sampled after each prompt."""
    generator = generator_of(engine)
    executor, call = generator.executor, generator._request_counter
    executor.collective_rpc(_record_samples)
    states = engine.extract(prompts)
    sampled = executor.collective_rpc(_recorded_samples)[0]
    return states, [sampled[f"req_{call}_{index}"] for index in range(len(prompts))]


def _record_samples(wrapper: Any) -> None:
    worker = wrapper.worker
    worker.recorded_samples = {}
    sample_tokens = type(worker).sample_tokens

    def record(grammar_output: Any) -> Any:
        output = sample_tokens(worker, grammar_output)
        for request_id, tokens in zip(output.req_ids, output.sampled_token_ids, strict=True):
            if len(tokens):  # none after a part of a prompt
                worker.recorded_samples[request_id] = int(tokens[0])
        return output

    worker.sample_tokens = record


def _recorded_samples(wrapper: Any) -> dict[str, int]:
    return wrapper.worker.recorded_samples
