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
        return [self._states(tokens) for tokens in token_ids]

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
    """Fails at its second batch."""

    _batches = 0

    def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        self._batches += 1
        if self._batches == 2:
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
