"""Stands in for the engine where a test is about what happens around it."""

import os
import time
from collections.abc import Sequence
from types import TracebackType

import torch

from eagle3.engine.architecture import read_architecture
from eagle3.engine.engine import EngineOptions
from eagle3.errors import EngineError


class FakeEngine:
    """Gives states that follow from token, position and capture point alone, never zero."""

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
        return [self._states(tokens) for tokens in token_ids]

    def close(self) -> None:
        pass

    def _states(self, tokens: Sequence[int]) -> torch.Tensor:
        tokens_T = torch.tensor(tokens) + torch.arange(len(tokens)) + 1
        points_L = torch.tensor(self.options.capture_points)
        units_H = torch.arange(1, self.architecture.hidden_size + 1)
        return (tokens_T[:, None, None] * 8 + points_L[:, None] + units_H / 8).to(torch.bfloat16)


class FailingEngine(FakeEngine):
    """Fails at its second batch."""

    _batches = 0

    def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        self._batches += 1
        if self._batches == 2:
            raise EngineError("the target stopped answering; run the same command again")
        return super().extract(token_ids)


class UnstartableEngine(FakeEngine):
    """Meets a fault that nobody foresaw."""

    def __init__(self, options: EngineOptions) -> None:
        raise RuntimeError("invalid\n  device function")


class SlowEngine(FakeEngine):
    """Leaves time to interrupt it."""

    def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        time.sleep(0.2)
        return super().extract(token_ids)
