"""The ring keeps to its size, reuses what was used last, and waits when it is empty."""

import threading

import pytest
import torch

from eagle3.engine.ring import Ring

GIB = 1024**3


class Made(list[tuple[int, ...]]):
    """Shapes of the buffers that a ring asked for; none takes memory."""

    def __call__(self, shape: tuple[int, ...]) -> torch.Tensor:
        self.append(shape)
        return torch.empty(shape, dtype=torch.bfloat16, device="meta")


@pytest.mark.parametrize(
    ("row_shape", "most_rows", "ring_bytes"),
    [
        pytest.param((4, 7168), 8192, GIB, id="Kimi-K2.5"),
        pytest.param((4, 7168), 1024, 2 * GIB, id="one rank of eight"),
        pytest.param((4, 576), 2048, GIB, id="SmolLM2"),
        pytest.param((4, 7168), 16384, 64 * 1024 * 1024, id="a ring smaller than a step"),
        pytest.param((2, 8), 64, 64, id="two rows"),
    ],
)
def test_buffers_fill_the_ring_and_no_more(
    row_shape: tuple[int, int], most_rows: int, ring_bytes: int
) -> None:
    made = Made()
    ring = Ring(row_shape, most_rows, ring_bytes, made)
    assert set(made) == {(ring.rows_per_buffer, *row_shape)}
    assert 1 <= ring.rows_per_buffer <= most_rows
    buffer_bytes = ring.rows_per_buffer * row_shape[0] * row_shape[1] * 2
    assert len(made) >= 2
    assert ring_bytes - buffer_bytes < len(made) * buffer_bytes <= ring_bytes
    assert buffer_bytes <= 64 * 1024 * 1024


def test_the_buffer_that_came_back_last_goes_first() -> None:
    ring = Ring((1, 2), 1, 16, lambda shape: torch.zeros(shape))
    first, second = ring.take(), ring.take()
    ring.give_back(second)
    ring.give_back(first)
    assert ring.take() is first


def test_taking_from_an_empty_ring_waits() -> None:
    ring = Ring((1, 2), 1, 8, lambda shape: torch.zeros(shape))
    buffers = [ring.take(), ring.take()]
    taken: list[torch.Tensor] = []
    waiting = threading.Thread(target=lambda: taken.append(ring.take()))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    ring.give_back(buffers[0])
    waiting.join(60)
    assert taken[0] is buffers[0]
