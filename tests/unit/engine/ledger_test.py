"""A prompt is whole when each of its rows was written once, whoever wrote them."""

import pytest

from eagle3.engine.ledger import Ledger
from eagle3.engine.rows import Rows


def rows(request: str, first: int, count: int) -> Rows:
    return Rows(request, first, count, "x", 0)


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    ledger.expect("a", 5)
    ledger.expect("b", 1)
    return ledger


def test_prompts_are_whole_with_their_last_row(ledger: Ledger) -> None:
    assert ledger.enter([rows("a", 3, 2)]) == []
    assert ledger.enter([rows("a", 0, 1), rows("b", 0, 1)]) == ["b"]
    assert ledger.open == ("a",)
    assert ledger.enter([rows("a", 1, 2)]) == ["a"]
    assert ledger.open == ()


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(rows("a", 1, 1), id="written twice"),
        pytest.param(rows("a", 0, 5), id="partly written twice"),
        pytest.param(rows("a", 4, 2), id="past the end"),
        pytest.param(rows("b", 1, 1), id="of no row"),
        pytest.param(rows("c", 0, 1), id="of no prompt"),
    ],
)
def test_a_row_that_is_not_awaited_is_refused(ledger: Ledger, again: Rows) -> None:
    ledger.enter([rows("a", 1, 2)])
    with pytest.raises(RuntimeError, match="written twice, or are not its own"):
        ledger.enter([again])


def test_a_prompt_that_is_whole_takes_no_more_rows(ledger: Ledger) -> None:
    ledger.enter([rows("b", 0, 1)])
    with pytest.raises(RuntimeError, match="request b"):
        ledger.enter([rows("b", 0, 1)])
