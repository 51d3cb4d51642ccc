"""What can be expected of a symbol: each kind says itself in words and reads what is there."""

import ast
from dataclasses import dataclass
from typing import Protocol

from tests.contract.pattern import occurs
from tests.contract.source import Definition, MissingSymbolError, Source, field_parameter


@dataclass(frozen=True)
class Finding:
    """What the source says: whether the expectation holds, and what was found, in words."""

    holds: bool
    found: str


class Expectation(Protocol):
    """One statement about a symbol; `str()` gives it in words."""

    def read(self, source: Source, definition: Definition) -> Finding:
        """Compare it with the source; MissingSymbolError where there is nothing to compare."""


@dataclass(frozen=True)
class Exists:
    """The symbol is there: for a name that is imported and handed on."""

    def __str__(self) -> str:
        return "is defined"

    def read(self, source: Source, definition: Definition) -> Finding:
        return Finding(True, definition.place)


@dataclass(frozen=True)
class Call:
    """A function or constructor takes this call.

    `"x"` is given by position, `"x="` by keyword, `"x?="` by keyword where the parameter exists.
    Parameters with defaults that the call leaves out may come and go.
    """

    arguments: tuple[str, ...]

    def __init__(self, *arguments: str) -> None:
        object.__setattr__(self, "arguments", arguments)

    def __str__(self) -> str:
        return f"takes ({', '.join(self.arguments)})"

    def read(self, source: Source, definition: Definition) -> Finding:
        signature = source.signature(definition)
        positional = sum(not argument.endswith("=") for argument in self.arguments)
        keywords = [
            argument.rstrip("?=")
            for argument in self.arguments
            if argument.endswith("=")
            and (not argument.endswith("?=") or signature.has(argument.rstrip("?=")))
        ]
        refusal = signature.refusal(positional, keywords)
        return Finding(refusal is None, f"{refusal}: {signature}" if refusal else definition.place)


@dataclass(frozen=True)
class Default:
    """A field of a class has this default, as source text."""

    value: str

    def __str__(self) -> str:
        return f"is {self.value} by default"

    def read(self, source: Source, definition: Definition) -> Finding:
        field = field_parameter(definition.node)
        if field is None:
            raise MissingSymbolError(f"{definition.name} is not a field")
        found = "without default" if field.default is None else field.default
        return Finding(field.default == self.value, found)


@dataclass(frozen=True)
class Is:
    """A name is assigned this value, as source text."""

    value: str

    def __str__(self) -> str:
        return f"is {self.value}"

    def read(self, source: Source, definition: Definition) -> Finding:
        value = getattr(definition.node, "value", None)
        found = "not assigned" if value is None else ast.unparse(value)
        return Finding(found == self.value, found)


@dataclass(frozen=True)
class Typed:
    """A field or property is annotated with this type, as source text."""

    annotation: str

    def __str__(self) -> str:
        return f"is a {self.annotation}"

    def read(self, source: Source, definition: Definition) -> Finding:
        node = definition.node
        annotation = getattr(node, "annotation", None) or getattr(node, "returns", None)
        found = "without annotation" if annotation is None else ast.unparse(annotation)
        return Finding(found == self.annotation, found)


@dataclass(frozen=True)
class Does:
    """The source of the symbol contains code of each of these forms (see pattern.py)."""

    what: str
    patterns: tuple[str, ...]

    def __init__(self, what: str, *patterns: str) -> None:
        object.__setattr__(self, "what", what)
        object.__setattr__(self, "patterns", patterns)

    def __str__(self) -> str:
        return self.what

    def read(self, source: Source, definition: Definition) -> Finding:
        for pattern in self.patterns:
            if not occurs(pattern, definition.node):
                lines = "; ".join(line.strip() for line in pattern.strip().splitlines())
                return Finding(False, f"no `{lines}` in {definition.place}")
        return Finding(True, f"so in {definition.place}")


@dataclass(frozen=True)
class Inherits:
    """A class derives from another one, which may itself be unknown here."""

    base: str

    def __str__(self) -> str:
        return f"derives from {self.base}"

    def read(self, source: Source, definition: Definition) -> Finding:
        bases = [
            ast.unparse(base).rpartition(".")[2]
            for known in source.ancestry(definition)
            for base in getattr(known.node, "bases", [])
        ]
        return Finding(self.base in bases, ", ".join(bases) or "no base class")


@dataclass(frozen=True)
class Lacks:
    """A class has none of these members: names that another class is going to add to it."""

    members: tuple[str, ...]

    def __init__(self, *members: str) -> None:
        object.__setattr__(self, "members", members)

    def __str__(self) -> str:
        return f"has no {', '.join(self.members)}"

    def read(self, source: Source, definition: Definition) -> Finding:
        present = [name for name in self.members if source.member(definition, name) is not None]
        return Finding(not present, f"has {', '.join(present)}" if present else definition.place)


@dataclass(frozen=True)
class Has:
    """A class has these members: methods, fields or assignments to `self`, own or inherited."""

    members: tuple[str, ...]

    def __init__(self, *members: str) -> None:
        object.__setattr__(self, "members", members)

    def __str__(self) -> str:
        return f"has {', '.join(self.members)}"

    def read(self, source: Source, definition: Definition) -> Finding:
        missing = [name for name in self.members if source.member(definition, name) is None]
        return Finding(not missing, f"no {', '.join(missing)}" if missing else definition.place)
