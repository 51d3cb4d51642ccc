"""Rows come from a GPU into host memory while the GPU goes on."""

import os
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from eagle3.engine.capture import Capture
from eagle3.engine.capture_worker import CaptureSettings, RowSender
from eagle3.engine.rows import Rows, Share
from eagle3.engine.transfer import CudaTransfer

DEVICE = torch.device("cuda:0")
ROWS, HIDDEN_SIZE = 4096, 1024


@pytest.fixture(scope="module")
def transfer() -> CudaTransfer:
    return CudaTransfer(DEVICE)


def _keep_busy(products: int = 100) -> torch.cuda.Event:
    """Gives the GPU work on the current stream: some tenths of a second for each hundred."""
    matrix = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
    for _ in range(products):
        matrix @ matrix
    done = torch.cuda.Event()
    done.record()
    return done


def test_buffers_are_pinned(transfer: CudaTransfer) -> None:
    assert transfer.new_buffer((2, 3)).is_pinned()


def test_the_rows_are_those_of_the_step_though_the_next_one_takes_their_memory(
    transfer: CudaTransfer,
) -> None:
    buffer = transfer.new_buffer((ROWS, HIDDEN_SIZE))
    for value in range(1, 20):
        buffer.zero_()
        _keep_busy()
        rows = torch.full((ROWS, HIDDEN_SIZE), value, device=DEVICE, dtype=torch.bfloat16)
        copied = transfer.copy(rows, buffer)
        del rows
        # The allocator would hand the same memory out again, to be overwritten at once.
        torch.full((ROWS, HIDDEN_SIZE), -1.0, device=DEVICE, dtype=torch.bfloat16)
        copied()
        assert (buffer == value).all()


def test_nobody_waits_for_the_step_but_who_wants_its_rows(transfer: CudaTransfer) -> None:
    buffer = transfer.new_buffer((ROWS, HIDDEN_SIZE))
    rows = torch.ones((ROWS, HIDDEN_SIZE), device=DEVICE, dtype=torch.bfloat16)
    torch.cuda.synchronize()
    # Longer than this process may be kept from running.
    done = _keep_busy(2000)
    copied = transfer.copy(rows, buffer)
    assert not done.query()
    waiting = threading.Thread(target=copied)
    waiting.start()
    waiting.join(200)
    assert done.query()
    assert (buffer == 1).all()


class _Layer(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return hidden_states * 2, hidden_states


def test_the_bytes_are_those_of_the_rows(tmp_path: Path) -> None:
    points = (1, 0)
    row_bytes = len(points) * HIDDEN_SIZE * 2
    path = tmp_path / "rows"
    layer = _Layer()
    settings = CaptureSettings(points, HIDDEN_SIZE, ROWS, 1, 16 * 1024**2, 2)
    sender = RowSender(settings, Share(0, 1), Capture([layer], points, HIDDEN_SIZE), DEVICE)
    steps = [torch.randn(ROWS, HIDDEN_SIZE, device=DEVICE, dtype=torch.bfloat16) for _ in range(8)]
    path.write_bytes(b"")
    os.truncate(path, len(steps) * ROWS * row_bytes)
    for number, states_TH in enumerate(steps):
        sender.begin(ROWS)
        layer(hidden_states=states_TH)
        sender.send([Rows(str(number), 0, ROWS, str(path), number * ROWS * row_bytes)])
    while (report := sender.finish()).more:
        assert report.failure is None
    assert report.failure is None
    states_TH = torch.cat(steps)
    expected = torch.stack([states_TH * 2 + states_TH, states_TH], dim=1).cpu()
    found = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.bfloat16)
    assert torch.equal(found.view(expected.shape), expected)
