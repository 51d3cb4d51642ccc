"""What a chat template writes around the contents of messages, whatever these contents are.

A template is a program. It is run once with contents that are no text but symbols: they can be put
between other text, and stripped, and that is all. Where the template looks at one (compares it,
measures it, takes it apart) nothing is known. Where it never does, its way through the program
cannot depend on any content, and the outline holds for all of them.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes

from eagle3.chat.chat_template import ChatTemplate

# Private use characters around the number of a symbol in rendered text.
_BEGIN, _END = "\ue000", "\ue001"
_PLACEHOLDER = re.compile(f"{_BEGIN}(\\d+){_END}")
# What makes values of written text, in which a template could look at placeholders.
_WRITES_INTO_VALUES = (
    nodes.Mod,
    nodes.Macro,
    nodes.CallBlock,
    nodes.FilterBlock,
    nodes.AssignBlock,
    nodes.Block,
)
# How compiled templates call themselves.
_TEMPLATE_FILE = "<template>"


@dataclass(frozen=True)
class Hole:
    """Where the content of message number `turn` stands, perhaps without white space around it."""

    turn: int
    is_stripped: bool = False

    def filled(self, content: str) -> str:
        return content.strip() if self.is_stripped else content


@dataclass(frozen=True)
class Outline:
    """Rendered text: literal parts and holes in turn, no two literal parts side by side.

    It holds for contents that are not blank and contain none of `absent`.
    """

    parts: tuple[str | Hole, ...]
    absent: frozenset[str]


class _InspectedError(Exception):
    """The template looked at a content."""


class _Log:
    """What happened to the symbols of one rendering."""

    def __init__(self) -> None:
        self.written: list[tuple[str | Hole, ...]] = []
        self.absent: set[str] = set()
        self.was_inspected = False

    def inspected(self) -> NoReturn:
        # Noted, too: a template's tests and filters swallow errors.
        self.was_inspected = True
        raise _InspectedError


def _inspected(symbol: "_Symbol", *_: object) -> NoReturn:
    _parts_of(symbol)[1].inspected()


def _parts_of(symbol: "_Symbol") -> tuple[tuple[str | Hole, ...], _Log]:
    return object.__getattribute__(symbol, "held")


class _Symbol:
    """Stands for a content. It is taken for a `str`, but whoever needs one in earnest fails."""

    def __init__(self, parts: tuple[str | Hole, ...], log: _Log) -> None:
        object.__setattr__(self, "held", (parts, log))

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return str
        if name in ("strip", "startswith", "endswith"):
            return object.__getattribute__(self, name)
        _inspected(self)

    def __str__(self) -> str:
        parts, log = _parts_of(self)
        # Only what the template itself writes is output; filters make values.
        if sys._getframe(1).f_code.co_filename != _TEMPLATE_FILE:
            log.inspected()
        log.written.append(parts)
        return f"{_BEGIN}{len(log.written) - 1}{_END}"

    def __add__(self, other: object) -> "_Symbol":
        return _joined(self, other, self)

    def __radd__(self, other: object) -> "_Symbol":
        return _joined(other, self, self)

    def __bool__(self) -> bool:
        return True

    def __contains__(self, text: object) -> bool:
        return _holds(self, text)

    def startswith(self, *text: object) -> bool:
        return _holds(self, *text)

    def endswith(self, *text: object) -> bool:
        return _holds(self, *text)

    def strip(self, characters: object = None) -> "_Symbol":
        hole = _hole_of(self)
        if hole is None or characters is not None:
            _inspected(self)
        return _Symbol((replace(hole, is_stripped=True),), _parts_of(self)[1])


def _holds(symbol: _Symbol, *text: object) -> bool:
    """Whether a content begins with, ends with or contains `text`: it shall not, then."""
    log = _parts_of(symbol)[1]
    if len(text) != 1 or type(text[0]) is not str or not text[0] or _hole_of(symbol) is None:
        log.inspected()
    log.absent.add(text[0])
    return False


def _hole_of(symbol: _Symbol) -> Hole | None:
    """The hole that `symbol` is, where it is nothing else."""
    parts, _ = _parts_of(symbol)
    return parts[0] if len(parts) == 1 and isinstance(parts[0], Hole) else None


def _joined(left: object, right: object, symbol: _Symbol) -> _Symbol:
    log = _parts_of(symbol)[1]
    parts: list[str | Hole] = []
    for side in (left, right):
        if type(side) is _Symbol:
            parts += _parts_of(side)[0]
        elif type(side) is str:
            parts.append(side)
        else:
            log.inspected()
    return _Symbol(tuple(parts), log)


for _name in (
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__len__"),
    *("__iter__", "__getitem__", "__reversed__", "__format__", "__repr__", "__mod__", "__mul__"),
    *("__rmul__", "__int__", "__float__", "__index__", "__bytes__", "__setattr__", "__reduce_ex__"),
):
    setattr(_Symbol, _name, _inspected)


def find_outline(
    template: ChatTemplate, roles: Sequence[str], *, open_answer: bool = False
) -> Outline | None:
    """The outline of plain conversations in which `roles` speak; None where there is none.

    With `open_answer`, up to where the target would answer; thinking is off.
    """
    if template.renders_itself or not _only_writes(template.source):
        return None
    log = _Log()
    messages = [
        {"role": role, "content": _Symbol((Hole(turn),), log)} for turn, role in enumerate(roles)
    ]
    try:
        text = template.render(messages, open_answer=open_answer)
    # A template that refuses symbols, or this order of roles, has no outline for it.
    except Exception:
        return None
    if log.was_inspected or text.count(_BEGIN) != len(log.written):
        return None
    parts: list[str | Hole] = [""]
    for position, piece in enumerate(_PLACEHOLDER.split(text)):
        for part in log.written[int(piece)] if position % 2 else (piece,):
            if isinstance(part, str) and isinstance(parts[-1], str):
                parts[-1] += part
            else:
                parts.append(part)
    return Outline(tuple(part for part in parts if part != ""), frozenset(log.absent))


@lru_cache(maxsize=4)
def _only_writes(source: str) -> bool:
    """Whether all that the template writes is output, and none of it a value."""
    try:
        parsed = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"]).parse(source)
    except jinja2.TemplateSyntaxError:
        return False
    loops = parsed.find_all(nodes.For)
    return not any(parsed.find_all(_WRITES_INTO_VALUES)) and not any(
        loop.recursive for loop in loops
    )
