"""Sizes are told in the unit that suits them."""

import pytest

from eagle3.extraction.size import readable_size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (32_651_232, "32.7 MB"),
        (61.4e9, "61.4 GB"),
        (344e12, "344.0 TB"),
        (5.2e15, "5,200.0 TB"),
    ],
)
def test_readable_size(size: float, text: str) -> None:
    assert readable_size(size) == text
