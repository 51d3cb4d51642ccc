"""Shares cover the rows of a step once; parts of prompts know their places."""

import pytest

from eagle3.engine.rows import Rows, Share, in_order, section

ROW_BYTES = 10


@pytest.mark.parametrize("writers", [1, 2, 3, 8])
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 100])
def test_shares_are_all_rows_once(rows: int, writers: int) -> None:
    shares = [Share(number, writers).of(rows) for number in range(writers)]
    assert [row for share in shares for row in share] == list(range(rows))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_section_cuts_prompts_at_its_ends() -> None:
    rows = [Rows("a", 5, 4, "x", 1000), Rows("b", 0, 3, "y", 0), Rows("c", 0, 2, "x", 500)]
    assert list(section(rows, range(2, 8), ROW_BYTES)) == [
        Rows("a", 7, 2, "x", 1020),
        Rows("b", 0, 3, "y", 0),
        Rows("c", 0, 1, "x", 500),
    ]
    assert list(section(rows, range(4, 5), ROW_BYTES)) == [Rows("b", 0, 1, "y", 0)]
    assert list(section(rows, range(3, 3), ROW_BYTES)) == []


def test_sections_of_all_shares_are_all_rows() -> None:
    rows = [Rows(str(n), n, 1 + n % 3, "x", 100 * n) for n in range(20)]
    total = sum(part.count for part in rows)
    for writers in (1, 2, 7):
        found = [
            (part.request, part.first + row, part.position + row * ROW_BYTES)
            for number in range(writers)
            for part in section(rows, Share(number, writers).of(total), ROW_BYTES)
            for row in range(part.count)
        ]
        assert found == [
            (part.request, part.first + row, part.position + row * ROW_BYTES)
            for part in rows
            for row in range(part.count)
        ]


def test_rows_come_in_the_order_of_the_runner() -> None:
    a, b = Rows("a", 0, 1, "x", 0), Rows("b", 0, 1, "x", 10)
    assert in_order([a, b], ["b", "a"]) == [b, a]
    for requests in (["a"], ["a", "b", "c"], ["a", "c"]):
        with pytest.raises(RuntimeError, match=r"planned were 2"):
            in_order([a, b], requests)
