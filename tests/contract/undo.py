"""Walks patches backwards, to see that they are in a text with all their lines and no others."""

from collections.abc import Sequence

from tools.python.environment.patching import Hunk


class NotAppliedError(Exception):
    """A text is not what the hunks leave behind; the message names the first line that differs."""


def undo(lines: Sequence[str], hunks: Sequence[Hunk]) -> list[str]:
    """The text before `hunks`, which are those of one diff of one file, in order.

    Raises:
        NotAppliedError: a line that a hunk adds or leaves is not exactly where it must be.
    """
    before: list[str] = []
    done = 0
    shift = 0
    for hunk in hunks:
        # An empty old side names the line before the insertion.
        begin = hunk.start - bool(hunk.old) + shift
        end = begin + len(hunk.new)
        for number, wanted in enumerate(hunk.new, begin):
            found = lines[number] if number < len(lines) else "the end of the file"
            if found != wanted:
                raise NotAppliedError(
                    f"hunk '{hunk.header}': line {number + 1} should be {wanted!r} and is {found!r}"
                )
        before += [*lines[done:begin], *hunk.old]
        done = end
        shift += len(hunk.new) - len(hunk.old)
    return [*before, *lines[done:]]
