"""Stands in for the engine where a test is about what happens around it."""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType

import torch

from eagle3.engine.architecture import read_architecture
from eagle3.engine.options import EngineOptions
from eagle3.engine.prefill import Prompt
from eagle3.errors import EngineError
from eagle3.store.durable import write_at
from eagle3.store.encoding import encode


class FakeEngine:
    """Gives states that follow from token, position and capture point alone, all healthy."""

    def __init__(self, options: EngineOptions) -> None:
        # As vLLM does: on stdout, from Python and past Python.
        print("noise of a library")
        os.write(1, b"noise of a worker process\n")
        self.options = options
        self.architecture = read_architecture(options.model)

    def __enter__(self) -> "FakeEngine":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """The states of one step, in which no prompt is cut."""
        return [self._states(tokens) for tokens in token_ids]

    def run(self, prompts: Iterable[Prompt]) -> Iterator[list[Prompt]]:
        step: list[Prompt] = []
        room = self.options.max_tokens_per_step
        for prompt in prompts:
            if step and len(prompt.token_ids) > room:
                yield self._run_step(step)
                step, room = [], self.options.max_tokens_per_step
            step.append(prompt)
            room -= len(prompt.token_ids)
        if step:
            yield self._run_step(step)

    def _run_step(self, step: list[Prompt]) -> list[Prompt]:
        states = self.extract([prompt.token_ids for prompt in step])
        for prompt, hidden_states_TLH in zip(step, states, strict=True):
            descriptor = os.open(prompt.path, os.O_WRONLY)
            encoded = encode(hidden_states_TLH, self.options.states_dtype)
            rows = encoded.contiguous().view(torch.uint8).numpy()
            write_at(descriptor, memoryview(rows), prompt.position)
            os.close(descriptor)
        return step

    def close(self) -> None:
        pass

    def _states(self, tokens: Sequence[int]) -> torch.Tensor:
        # Whole numbers up to 256 are exact in bf16, and so is their scaling by powers of two:
        # no row equals that of another token, position or point, and none is constant.
        digits = [
            (1 + token % 128, 200 + token // 128, 1 + place % 128, 1 + place // 128)
            for place, token in enumerate(tokens)
        ]
        rows_TH = torch.tensor(digits).repeat(1, self.architecture.hidden_size // 4)
        points_L = 2.0 ** torch.tensor(self.options.capture_points)
        return (rows_TH[:, None, :] * points_L[:, None]).to(torch.bfloat16)


class FailingEngine(FakeEngine):
    """Fails at its second step."""

    _steps = 0

    def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        self._steps += 1
        if self._steps == 2:
            raise EngineError("the target stopped answering; run the same command again")
        return super().extract(token_ids)


class UnfitEngine(FakeEngine):
    """Gives zeros at the second token of a sample of two."""

    def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        states = super().extract(token_ids)
        for hidden_states_TLH in states:
            if len(hidden_states_TLH) == 2:
                hidden_states_TLH[1] = 0
        return states


class UnstartableEngine(FakeEngine):
    """Meets a fault that nobody foresaw."""

    def __init__(self, options: EngineOptions) -> None:
        raise RuntimeError("invalid\n  device function")


class SlowEngine(FakeEngine):
    """Leaves time to interrupt it."""

    def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        time.sleep(0.2)
        return super().extract(token_ids)
