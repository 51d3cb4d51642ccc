"""Any number of processes writes the bytes that one writes, through a ring of any size."""

import random
from pathlib import Path

import pytest
import torch
from torch import nn

from eagle3.engine.capture import Capture
from eagle3.engine.capture_worker import CaptureSettings, RowSender
from eagle3.engine.rows import Rows, Share

POINTS, HIDDEN_SIZE = (1, 0), 4
ROW_BYTES = len(POINTS) * HIDDEN_SIZE * 2


class Layer(nn.Module):
    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return hidden_states * 2, hidden_states


def write_step(
    folder: Path, rows: list[Rows], states_TH: torch.Tensor, writers: int, ring_bytes: int
) -> list[Rows]:
    """Has a step of these rows written as `writers` ranks would; what they report."""
    written: list[Rows] = []
    for number in range(writers):
        layer = Layer()
        settings = CaptureSettings(POINTS, HIDDEN_SIZE, len(states_TH), writers, ring_bytes, 2)
        capture = Capture([layer], POINTS, HIDDEN_SIZE)
        sender = RowSender(settings, Share(number, writers), capture, torch.device("cpu"))
        sender.begin(len(states_TH))
        layer(hidden_states=states_TH)
        sender.send(rows)
        more = True
        while more:
            report = sender.finish()
            assert report.failure is None
            written += report.written
            more = report.more
    return written


@pytest.mark.parametrize("writers", [1, 2, 3, 5])
@pytest.mark.parametrize("ring_bytes", [2 * ROW_BYTES, 6 * ROW_BYTES, 1024 * ROW_BYTES])
def test_the_bytes_are_those_of_the_rows(tmp_path: Path, writers: int, ring_bytes: int) -> None:
    chance = random.Random(0)
    lengths = [chance.randint(1, 20) for _ in range(12)]
    states_TH = torch.randn(sum(lengths), HIDDEN_SIZE).to(torch.bfloat16)
    paths = [str(tmp_path / name) for name in ("x", "y")]
    rows, position = [], 0
    for number, length in enumerate(lengths):
        rows.append(Rows(str(number), 3, length, paths[number % 2], position))
        position += length * ROW_BYTES
    for path in paths:
        Path(path).write_bytes(bytes(position))
    written = write_step(tmp_path, rows, states_TH, writers, ring_bytes)
    assert sum(part.count for part in written) == len(states_TH)
    expected = torch.stack([states_TH * 3, states_TH], dim=1).view(torch.uint8).numpy().tobytes()
    both = (Path(path).read_bytes() for path in paths)
    # Where one file has rows, the other has zeros.
    assert bytes(one | other for one, other in zip(*both, strict=True)) == expected


def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    layer = Layer()
    settings = CaptureSettings(POINTS, HIDDEN_SIZE, 1, 1, 1024, 1)
    sender = RowSender(
        settings, Share(0, 1), Capture([layer], POINTS, HIDDEN_SIZE), torch.device("cpu")
    )
    sender.begin(1)
    layer(hidden_states=torch.ones(1, HIDDEN_SIZE, dtype=torch.bfloat16))
    path = str(tmp_path / "gone")
    sender.send([Rows("a", 0, 1, path, 0)])
    assert sender.writer.report().failure == f"cannot write to {path}: No such file or directory"
