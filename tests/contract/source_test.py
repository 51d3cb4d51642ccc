"""The reader of signatures and definitions, on small packages written for the purpose."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from tests.contract.contract import Contract, check
from tests.contract.expectations import (
    Call,
    Default,
    Does,
    Exists,
    Expectation,
    Has,
    Inherits,
    Is,
    Lacks,
    Typed,
)
from tests.contract.source import MissingSymbolError, Source

Write = Callable[..., Source]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a package `box` from the text of its modules."""

    def write_package(**modules: str) -> Source:
        folder = tmp_path / "box"
        folder.mkdir()
        for name, text in {"__init__": "", **modules}.items():
            (folder / f"{name}.py").write_text(dedent(text))
        return Source.in_site(tmp_path, ["box", "absent"])

    return write_package


def holds(source: Source, symbol: str, expected: Expectation) -> bool:
    return check(Contract(symbol, expected, (), ""), source).holds


SIGNATURE = "def f(a, b, c=1, *, d, e=None): ..."


@pytest.mark.parametrize(
    ("call", "accepted"),
    [
        (Call("a", "b", "d="), True),
        (Call("a=", "b=", "c=", "d=", "e="), True),
        (Call("a", "b"), False),  # d is required
        (Call("a", "d="), False),  # b is required
        (Call("a", "b", "d=", "f="), False),  # no f
        (Call("a", "b", "a=", "d="), False),  # a twice
        (Call("a", "b", "c", "d"), False),  # d by keyword only
        (Call("a", "b", "d?=", "f?="), True),  # f only where it is there
        (Call("a", "b", "f?="), False),  # d is required
    ],
)
def test_call_binds_as_python_binds_it(write: Write, call: Call, accepted: bool) -> None:
    assert holds(write(m=SIGNATURE), "box.m:f", call) is accepted


def test_open_signatures_take_what_they_do_not_name(write: Write) -> None:
    source = write(m="def f(a, *args, **kwargs): ...")
    assert holds(source, "box.m:f", Call("a", "b", "c="))
    assert not holds(source, "box.m:f", Call("c="))


def test_methods_leave_self_out_and_static_methods_have_none(write: Write) -> None:
    source = write(
        m="""
        class A:
            def f(self, x): ...
            @classmethod
            def g(cls, x): ...
            @staticmethod
            def h(x): ...
        """
    )
    for name in "fgh":
        assert holds(source, f"box.m:A.{name}", Call("x"))
        assert not holds(source, f"box.m:A.{name}", Call("self", "x"))


def test_overloads_give_way_to_the_function(write: Write) -> None:
    source = write(
        m="""
        @overload
        def f(a): ...
        @overload
        def f(b): ...
        def f(a=None, b=None): ...
        """
    )
    assert holds(source, "box.m:f", Call("a=", "b="))


FIELDS = """
from dataclasses import InitVar, dataclass, field
from typing import ClassVar
@dataclass
class Base:
    size: InitVar[int]
    LIMIT: ClassVar[int] = 3
    name: str = "x"
@dataclass
class Config(Base):
    caching: bool = Field(default=True, description="")
    names: list = field(default_factory=list)
    found: int = field(init=False)
    must: int = Field(ge=1)
"""


def test_fields_are_the_constructor_of_a_dataclass(write: Write) -> None:
    source = write(m=FIELDS)
    found = str(source.signature(source.find("box.m:Config")))
    assert found == "(size, name='x', caching=True, names=list(), must)"


def test_default_is_compared_as_text(write: Write) -> None:
    source = write(m=FIELDS)
    assert holds(source, "box.m:Config.caching", Default("True"))
    assert holds(source, "box.m:Config.name", Default("'x'"))
    assert not holds(source, "box.m:Config.caching", Default("False"))
    assert not holds(source, "box.m:Config.size", Default("None"))
    assert not holds(source, "box.m:Config.must", Default("1"))
    assert not holds(source, "box.m:Config", Default("True"))


def test_a_value_is_compared_as_text(write: Write) -> None:
    source = write(m="LAST = -1\nNAME: str\ndef f(): ...")
    assert holds(source, "box.m:LAST", Is("-1"))
    assert not holds(source, "box.m:LAST", Is("1"))
    assert not holds(source, "box.m:NAME", Is("None"))
    assert not holds(source, "box.m:f", Is("None"))


def test_own_constructor_wins_over_fields_also_when_inherited(write: Write) -> None:
    source = write(
        a="""
        class Base:
            size: int
            def __init__(self, width, height=1): ...
        """,
        m="""
        from .a import Base as Parent
        class A(Parent):
            colour: str
        """,
    )
    assert str(source.signature(source.find("box.m:A"))) == "(width, height=1)"


def test_names_are_followed_through_re_exports(write: Write) -> None:
    source = write(
        __init__="from box.middle import *\nfrom . import deep",
        middle="from .deep import f as g",
        deep="def f(x): ...\ndef h(x): ...",
    )
    assert source.find("box:g").place == "box/deep.py:1"
    assert source.find("box:deep").place == "box/deep.py:1"
    with pytest.raises(MissingSymbolError, match=r"no name f in box\.middle"):
        source.find("box.middle:f")


def test_a_class_may_have_the_name_of_its_base(write: Write) -> None:
    source = write(
        a="class Layer:\n    def norm(self): ...",
        m="from box.a import Layer\nclass Layer(Layer):\n    pass",
    )
    assert source.find("box.m:Layer.norm").place == "box/a.py:2"


def test_members_are_methods_fields_and_what_is_assigned_to_self(write: Write) -> None:
    source = write(
        m="""
        class Base:
            kind: str = "x"
            def __init__(self):
                self.start, self.end = 0, 1
                other.lost = 1
        class A(Base):
            @property
            def rows(self) -> list[str]: ...
        """
    )
    assert holds(source, "box.m:A", Has("kind", "start", "end", "rows"))
    assert not holds(source, "box.m:A", Has("kind", "lost"))
    assert holds(source, "box.m:A", Lacks("lost", "begin"))
    assert not holds(source, "box.m:A", Lacks("lost", "start"))
    assert holds(source, "box.m:A.rows", Typed("list[str]"))
    assert not holds(source, "box.m:A.rows", Typed("list[int]"))
    assert not holds(source, "box.m:A.start", Typed("int"))


def test_inheritance_goes_through_known_classes(write: Write) -> None:
    source = write(m="class A(nn.Module): ...\nclass B(A): ...\nclass C: ...")
    assert holds(source, "box.m:B", Inherits("Module"))
    assert not holds(source, "box.m:C", Inherits("Module"))


@pytest.mark.parametrize(
    ("symbol", "found"),
    [
        ("absent.m:f", "no package absent"),
        ("box.n:f", "no module box.n"),
        ("box.m:g", "no name g in box.m"),
        ("box.m:A.g", "no member g in A"),
    ],
)
def test_what_is_missing_is_named(write: Write, symbol: str, found: str) -> None:
    source = write(m="class A:\n    def f(self): ...")
    verdict = check(Contract(symbol, Exists(), (), ""), source)
    assert (verdict.holds, verdict.found) == (False, found)


RETURNS = """
def rpc(method, rank=None):
    output_rank = rank

    def get():
        responses = []
        # a comment
        return responses[0] if output_rank is not None else responses

    return aggregate(get(), retry=3)
"""


@pytest.mark.parametrize(
    ("pattern", "there"),
    [
        ("return __all[0] if __rank is not None else __all", True),
        ("return __all[0] if __rank is not None else __other", True),
        ("return __all if __rank is not None else __all", False),
        ("return __all[1] if __rank is not None else __all", False),
        ("__chosen = rank\n...\nreturn aggregate(...)", True),
        ("return aggregate(...)\n...\n__chosen = rank", False),
        ("__chosen = rank\nreturn ...", False),
        ("aggregate(..., retry=3)", True),
        ("aggregate(..., retry=4)", False),
        ("aggregate(get())", False),
        ("aggregate(get(), ...)", True),
        ("aggregate(put(), ...)", False),
        ("3", True),
        ("4", False),
    ],
)
def test_patterns_match_structure(write: Write, pattern: str, there: bool) -> None:
    assert holds(write(m=RETURNS), "box.m:rpc", Does("", pattern)) is there


def test_each_of_several_patterns_must_be_there(write: Write) -> None:
    source = write(m=RETURNS)
    assert holds(source, "box.m:rpc", Does("", "output_rank = rank", "responses = []"))
    assert not holds(source, "box.m:rpc", Does("", "output_rank = rank", "responses = {}"))


def test_a_loop_is_matched_with_its_body_in_order(write: Write) -> None:
    pattern = """
    for __item in __layers:
        ...
        if __index in self.chosen:
            ...
        __stream = layer(...)
    """
    before = """
    def f(self):
        for i, layer in enumerate(self.layers):
            note(i)
            if i in self.chosen:
                out.append(h)
            h = layer(h)
    """
    after = """
    def f(self):
        for i, layer in enumerate(self.layers):
            h = layer(h)
            if i in self.chosen:
                out.append(h)
    """
    source = write(before=before, after=after)
    assert holds(source, "box.before:f", Does("", pattern))
    assert not holds(source, "box.after:f", Does("", pattern))


@pytest.mark.parametrize(
    ("pattern", "there"),
    [
        ("if a:\n    b = 1", True),
        ("if a:\n    b = 1\nelse:\n    b = 2", True),
        ("if a:\n    b = 1\nelse:\n    b = 3", False),
    ],
)
def test_an_else_that_is_not_asked_for_does_not_matter(
    write: Write, pattern: str, there: bool
) -> None:
    source = write(m="def f(a):\n    if a:\n        b = 1\n    else:\n        b = 2")
    assert holds(source, "box.m:f", Does("", pattern)) is there
