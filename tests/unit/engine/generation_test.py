"""Prompts come into a running target together, and each as soon as its turn allows."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eagle3.engine.generation import GenerationEngine, GenerationOptions, Sampling
from tests.unit.tiny_target import make_target

SAMPLING = Sampling(1.0, 1.0, 0, 0.0, 1.0, (2,))
AT_ONCE = 32


class Steps:
    """Stands in for vLLM's engine: `max_tokens` steps after its prompt came in, a sequence ends."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}
        self.taken_in: list[int] = []
        self._came = 0

    def add_request(self, key: str, prompt: Any, params: Any) -> None:
        assert prompt == {"prompt_token_ids": [1]}
        self.left[key] = params.max_tokens
        self._came += 1

    def step(self) -> list[Any]:
        assert 0 < len(self.left) <= AT_ONCE
        self.taken_in.append(self._came)
        self._came = 0
        self.left = {key: left - 1 for key, left in self.left.items()}
        ended = [key for key, left in self.left.items() if left == 0]
        for key in ended:
            del self.left[key]
        completion = SimpleNamespace(token_ids=[2], finish_reason="stop")
        return [SimpleNamespace(request_id=key, outputs=[completion]) for key in ended]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GenerationEngine:
    monkeypatch.setattr(GenerationEngine, "_start", lambda self: None)
    target = make_target(tmp_path / "target")
    engine = GenerationEngine(GenerationOptions(target, max_model_len=64))
    engine.sequences_at_once = AT_ONCE
    monkeypatch.setattr(engine, "_engine", Steps())
    return engine


def run(engine: GenerationEngine, lengths: list[int]) -> list[str]:
    """Runs sequences of so many tokens; the keys, numbered, in the order in which they ended."""
    for number, length in enumerate(lengths):
        engine.submit(str(number), [1], SAMPLING, max_tokens=length, seed=number)
    ended: list[str] = []
    while len(ended) < len(lengths):
        ended += [generated.key for generated in engine.step()]
    return ended


def test_prompts_come_in_together(engine: GenerationEngine) -> None:
    # From the tenth step on one ends each step: no step takes in a single prompt.
    lengths = [*range(10, 10 + AT_ONCE), *[100] * 20]
    ended = run(engine, lengths)
    steps: Any = engine._engine
    assert sorted(ended, key=int) == [str(number) for number in range(len(lengths))]
    assert steps.taken_in[:1] == [AT_ONCE]
    assert sum(steps.taken_in) == len(lengths)
    assert set(steps.taken_in[1:]) == {0, 2}


def test_few_prompts_do_not_wait(engine: GenerationEngine) -> None:
    assert run(engine, [3, 1, 2]) == ["1", "2", "0"]
    steps: Any = engine._engine
    assert steps.taken_in == [3, 0, 0]


def test_the_last_prompt_comes_in_alone(engine: GenerationEngine) -> None:
    ended = run(engine, [*[5] * AT_ONCE, 1])
    assert ended[-1] == str(AT_ONCE)
