"""What makes generated text unfit for training: loops, nothing at all, no end, no language."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

Fault = Literal["empty", "length", "loop"]

_GRAM = 8
_LEAST_REPEATED_TOKENS = 48
_LEAST_REPEATS = 3
_LEAST_LETTERS = 0.5
# Unicode's control characters, private use and unassigned.
_NO_TEXT = ("Cc", "Co", "Cn")
_NOT_WORDS = re.compile(r"[\W_]+")


def find_fault(ids: Sequence[int], *, is_cut: bool) -> Fault | None:
    """What is wrong with an answer of tokens `ids`, its end-of-turn token left out.

    `is_cut`: it used up its length. An answer that ran in a circle until then is a `loop`.
    """
    if not ids:
        return "empty"
    if _is_loop(ids):
        return "loop"
    return "length" if is_cut else None


def _is_loop(ids: Sequence[int]) -> bool:
    """Whether a passage comes at least three times in a row, over 48 tokens or more in all.

    Where 8 tokens stood before, what follows is compared with what followed then, for as long as
    it is the same. Looked for everywhere, since a target may leave a loop again.
    """
    last_end: dict[tuple[int, ...], int] = {}
    period = repeated = 0
    grams = zip(*(ids[offset:] for offset in range(_GRAM)), strict=False)
    for end, gram in enumerate(grams, start=_GRAM):
        if period and gram[-1] == ids[end - 1 - period]:
            repeated += 1
        else:
            period = end - last_end.get(gram, end)
            repeated = _GRAM
        last_end[gram] = end
        if period and period + repeated >= max(_LEAST_REPEATED_TOKENS, _LEAST_REPEATS * period):
            return True
    return False


def find_odd_text(text: str) -> str | None:
    """Why a question is none that a user would ask, or None."""
    if "\ufffd" in text:
        return "broken characters"
    visible = set(text).difference("\n\t\r")
    if any(unicodedata.category(character) in _NO_TEXT for character in visible):
        return "control characters"
    written = "".join(text.split())
    letters = sum(map(str.isalnum, written))
    if letters < _LEAST_LETTERS * len(written):
        return "hardly a letter"
    return None


def normalise(text: str) -> str:
    """`text` without case, punctuation and white space: equal for questions that differ in those.

    Text of nothing else stays as it is.
    """
    plain = _NOT_WORDS.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()
    return plain or text
