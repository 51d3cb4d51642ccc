"""speculators' own step is measured as it is installed, in a process of its own."""

import pytest
import torch

from eagle3.benchmark.training.peer import PeerMeasurement, measure_peer
from eagle3.benchmark.training.shape import BenchShape
from eagle3.draft.config import DraftConfig


def test_the_release_of_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    # Tensors so small that threads would only wait for each other.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # 128 rows: what its attention needs on a CPU.
    shape = BenchShape(DraftConfig(40, 16, 16, 24, 4, 2, 8, 64, (1, 2, 3)), 128, 32, 2)
    answer = measure_peer(shape, None, torch.device("cpu"), 1)
    assert isinstance(answer, PeerMeasurement), answer
    assert answer.version == "0.3.0"
    assert answer.measurement.tokens_per_s > 0
    assert torch.isfinite(torch.tensor(answer.measurement.loss))
