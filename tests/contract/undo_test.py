"""Patches walked backwards, on small texts."""

from pathlib import Path

import pytest

from tests.contract.undo import NotAppliedError, undo
from tools.python.environment.patching import Hunk, read_patch

TWO_HUNKS = """\
--- a/p/f.py
+++ b/p/f.py
@@ -1,3 +1,4 @@
 one
+one and a half
 two
-three
+THREE
@@ -6,2 +7,1 @@
 six
-seven
"""

BEFORE = ["one\n", "two\n", "three\n", "four\n", "five\n", "six\n", "seven\n", "eight\n"]
AFTER = ["one\n", "one and a half\n", "two\n", "THREE\n", "four\n", "five\n", "six\n", "eight\n"]


@pytest.fixture
def hunks(tmp_path: Path) -> tuple[Hunk, ...]:
    file = tmp_path / "01-f.patch"
    file.write_text(TWO_HUNKS)
    return read_patch(file).changes[0].hunks


def test_undo_gives_the_text_before(hunks: tuple[Hunk, ...]) -> None:
    assert undo(AFTER, hunks) == BEFORE


@pytest.mark.parametrize("line", [0, 1, 2, 3, 6])
def test_a_line_that_differs_is_named(hunks: tuple[Hunk, ...], line: int) -> None:
    text = [*AFTER]
    text[line] = "other\n"
    with pytest.raises(NotAppliedError, match=rf"line {line + 1} should be .* and is 'other"):
        undo(text, hunks)


def test_a_patch_that_is_not_applied_is_noticed(hunks: tuple[Hunk, ...]) -> None:
    with pytest.raises(NotAppliedError):
        undo(BEFORE, hunks)


def test_a_patch_applied_at_another_place_is_noticed(hunks: tuple[Hunk, ...]) -> None:
    with pytest.raises(NotAppliedError):
        undo(["zero\n", *AFTER], hunks)


def test_a_text_that_ends_early_is_noticed(hunks: tuple[Hunk, ...]) -> None:
    with pytest.raises(NotAppliedError, match="the end of the file"):
        undo(AFTER[:5], hunks)
