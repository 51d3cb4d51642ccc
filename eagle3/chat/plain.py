"""Rows in which text is all that is said, as in nearly all: who says what, in one step.

It is what `formats` would make of the row. A row that holds more, or of which something may be
wrong, is left to that.
"""

from typing import Any, NamedTuple

from eagle3.chat.formats import KEYS
from eagle3.chat.turns import NOT_TEXT_KEYS, read_plain_turns


class PlainRow(NamedTuple):
    """The roles that speak in turn, in whatever order, and what each says: never blank."""

    form: str
    roles: tuple[str, ...]
    contents: list[str]


# Forms of turns: the column of each, and those by which a row would be more, or something else.
_FORMS = {
    form: (
        KEYS[form],
        frozenset({*KEYS.values(), *NOT_TEXT_KEYS, "tools", "system"} - {KEYS[form]}),
    )
    for form in ("messages", "sharegpt")
}


def read_plain(fields: dict[str, Any], form: str | None = None) -> PlainRow | None:
    """The plain row of the columns `fields`, which are of `form` if that is given, or None."""
    for known, (key, others) in _FORMS.items():
        turns = fields.get(key)
        if not isinstance(turns, list) or form not in (None, known):
            continue
        if not others.isdisjoint(fields) and any(fields.get(name) is not None for name in others):
            return None
        plain = read_plain_turns(key, turns)
        if plain is None or not turns:
            return None
        roles, contents = plain
        return PlainRow(known, tuple(roles), contents)
    return None
