"""What is degenerate, and what only looks like it."""

import random

import pytest

from eagle3.generation.faults import find_fault, find_odd_text, normalise

_VARIED = random.Random(0).choices(range(1000), k=400)


@pytest.mark.parametrize(
    "ids",
    [
        [7] * 50,
        [1, 2, 3] * 20,
        [*_VARIED[:100], *_VARIED[100:120] * 3],
        [*_VARIED[:100], *([5, 6] * 30), *_VARIED[100:200]],
        _VARIED[:130] * 3,
        # Its own parts come again within it.
        [*_VARIED[:9], 1, *_VARIED[:9], 2] * 4,
    ],
)
def test_a_passage_three_times_in_a_row_is_a_loop(ids: list[int]) -> None:
    assert find_fault(ids, is_cut=False) == "loop"
    assert find_fault(ids, is_cut=True) == "loop"


@pytest.mark.parametrize(
    "ids",
    [
        _VARIED,
        [7] * 40,  # a short line of dashes
        _VARIED[:130] * 2,
        [*_VARIED[:30], *_VARIED[50:60], *_VARIED[:30], *_VARIED[60:80], *_VARIED[:30]],
        [token for number in range(60) for token in (1, 2, number, 3)],  # a list
    ],
)
def test_what_comes_again_now_and_then_is_none(ids: list[int]) -> None:
    assert find_fault(ids, is_cut=False) is None
    assert find_fault(ids, is_cut=True) == "length"


def test_nothing_is_empty() -> None:
    assert find_fault([], is_cut=False) == "empty"


@pytest.mark.parametrize(
    ("text", "odd"),
    [
        ("How do I sort a list?", None),
        ("Wie geht's?\nUnd dir?\t", None),
        ("一加一等于几", None),
        ("def f(x): return {x: [x] * 2}", None),
        ("What is \ufffd?", "broken characters"),
        ("What\x00 is it?", "control characters"),
        ("}} {{ -- == ;; ++ a", "hardly a letter"),
    ],
)
def test_odd_text_is_told(text: str, odd: str | None) -> None:
    assert find_odd_text(text) == odd


def test_questions_are_equal_but_for_case_punctuation_and_space() -> None:
    assert normalise("What's  the  Time?") == normalise("what s the time\n")
    assert normalise("\uff11 + 1?") == normalise("1+1")
    assert normalise("What is C?") != normalise("What is D?")
    assert normalise("?!") == "?!"
