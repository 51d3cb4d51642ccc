"""Reads the Python source of a package: where a name is defined and how it is called.

Nothing is imported, so a package can be read that is not installed, whose dependencies are
missing or that belongs to another version of Python.

A symbol is written `package.module:Class.member`, or `package.module:` for a whole module.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path


class MissingSymbolError(LookupError):
    """A symbol is not in the source; the message says which part of it is not there."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a signature; `default` is its source text, None where it is required."""

    name: str
    default: str | None = None
    positional: bool = True

    def __str__(self) -> str:
        return self.name if self.default is None else f"{self.name}={self.default}"


@dataclass(frozen=True)
class Signature:
    """What a function or constructor can be called with, `self` and `cls` left out."""

    parameters: tuple[Parameter, ...]
    any_positional: bool = False
    any_keyword: bool = False

    def __str__(self) -> str:
        parts = [str(parameter) for parameter in self.parameters]
        parts += ["*args"] * self.any_positional + ["**kwargs"] * self.any_keyword
        return f"({', '.join(parts)})"

    def has(self, name: str) -> bool:
        """Whether a parameter of this name is there."""
        return any(parameter.name == name for parameter in self.parameters)

    def refusal(self, positional: int, keywords: Sequence[str]) -> str | None:
        """Why a call with so many positional and these keyword arguments fails, else None."""
        by_position = [p for p in self.parameters if p.positional]
        if positional > len(by_position) and not self.any_positional:
            return f"takes {len(by_position)} positional arguments"
        given = {p.name for p in by_position[:positional]}
        names = {p.name for p in self.parameters}
        for keyword in keywords:
            if keyword in given:
                return f"{keyword} is given twice"
            if keyword not in names and not self.any_keyword:
                return f"no parameter {keyword}"
        missing = [
            p.name
            for p in self.parameters
            if p.default is None and p.name not in given and p.name not in keywords
        ]
        return f"requires {', '.join(missing)}" if missing else None


@dataclass(frozen=True)
class Definition:
    """Where a symbol is defined: its syntax tree, and the module that holds it."""

    name: str
    module: str
    path: Path
    node: ast.AST

    @property
    def place(self) -> str:
        """Source file and line, the file relative to the folder of the package."""
        depth = self.module.count(".") + (self.path.name == "__init__.py")
        file = self.path.relative_to(self.path.parents[depth])
        return f"{file}:{getattr(self.node, 'lineno', 1)}"


@dataclass(frozen=True)
class Source:
    """The source of some packages: name of a package -> its folder."""

    folders: Mapping[str, Path]
    _modules: dict[str, tuple[Path, ast.Module]] = field(default_factory=dict, repr=False)

    @classmethod
    def in_site(cls, site: Path, packages: Sequence[str]) -> "Source":
        """Those of the packages that lie in `site`, a site-packages or an unpacked wheel."""
        found = {name: site / name for name in packages if (site / name / "__init__.py").is_file()}
        return cls(found)

    def module(self, name: str) -> tuple[Path, ast.Module]:
        """File and syntax tree of a module; MissingSymbolError where it does not exist."""
        if name not in self._modules:
            package, *rest = name.split(".")
            if package not in self.folders:
                raise MissingSymbolError(f"no package {package}")
            stem = self.folders[package].joinpath(*rest)
            candidates = (stem / "__init__.py", stem.with_name(f"{stem.name}.py"))
            path = next((path for path in candidates if path.is_file()), None)
            if path is None:
                raise MissingSymbolError(f"no module {name}")
            self._modules[name] = path, ast.parse(path.read_text(encoding="utf-8"))
        return self._modules[name]

    def find(self, symbol: str) -> Definition:
        """Follow a symbol through re-exports and base classes to its definition.

        Raises:
            MissingSymbolError: a part of it does not exist.
        """
        module, _, qualified_name = symbol.partition(":")
        path, tree = self.module(module)
        if not qualified_name:
            return Definition(module, module, path, tree)
        first, *members = qualified_name.split(".")
        definition = self._global(module, first)
        if definition is None:
            raise MissingSymbolError(f"no name {first} in {module}")
        for member in members:
            owner, definition = definition, self.member(definition, member)
            if definition is None:
                raise MissingSymbolError(f"no member {member} in {owner.name}")
        return definition

    def member(self, owner: Definition, name: str) -> Definition | None:
        """A method, field or `self.name = ...` of a class or of one of its known bases."""
        for base in self.ancestry(owner):
            members = _Members(base.node)
            node = members.named(name) or members.assigned_to_self(name)
            if node is not None:
                return Definition(f"{owner.name}.{name}", base.module, base.path, node)
        return None

    def ancestry(self, definition: Definition) -> Iterator[Definition]:
        """A class and those of its bases that these packages define, nearest first."""
        if not isinstance(definition.node, ast.ClassDef):
            return
        yield definition
        for base in definition.node.bases:
            if isinstance(base, ast.Name):
                parent = self._global(definition.module, base.id, skip=definition.node)
                if parent is not None:
                    yield from self.ancestry(parent)

    def signature(self, definition: Definition) -> Signature:
        """How a function is called, or a class constructed; MissingSymbolError if neither."""
        if isinstance(definition.node, ast.FunctionDef | ast.AsyncFunctionDef):
            return _function_signature(definition.node, bound="." in definition.name)
        if isinstance(definition.node, ast.ClassDef):
            constructor = self.member(definition, "__init__")
            if constructor is not None and isinstance(constructor.node, ast.FunctionDef):
                return _function_signature(constructor.node, bound=True)
            return self._fields_signature(definition)
        raise MissingSymbolError(f"{definition.name} cannot be called")

    def _fields_signature(self, definition: Definition) -> Signature:
        """The constructor that a dataclass, pydantic model or msgspec struct gets by itself."""
        parameters: dict[str, Parameter] = {}
        for base in reversed(list(self.ancestry(definition))):
            for node in base.node.body:  # type: ignore[attr-defined]
                parameter = field_parameter(node)
                if parameter is not None:
                    parameters[parameter.name] = parameter
        return Signature(tuple(parameters.values()))

    def _global(
        self,
        module: str,
        name: str,
        skip: ast.AST | None = None,
        asked: frozenset[tuple[str, str]] = frozenset(),
    ) -> Definition | None:
        """What `name` means in a module.

        `skip` is a class that shadows its own base's name; `asked` ends circular imports.
        """
        if (module, name) in asked:
            return None
        path, tree = self.module(module)
        members = _Members(tree)
        node = members.named(name, skip)
        if node is not None:
            return Definition(name, module, path, node)
        for statement in members.imports:
            origin = _import_origin(statement, module, is_package=path.name == "__init__.py")
            for alias in statement.names:
                if alias.name != "*" and (alias.asname or alias.name) != name:
                    continue
                wanted = name if alias.name == "*" else alias.name
                found = self._imported(origin, wanted, asked | {(module, name)})
                if found is not None:
                    return found
        return None

    def _imported(
        self, module: str, name: str, asked: frozenset[tuple[str, str]]
    ) -> Definition | None:
        """What `from module import name` brings: a name of the module or a module below it."""
        if module.split(".")[0] not in self.folders:
            return None
        try:
            found = self._global(module, name, asked=asked)
            if found is None:
                path, tree = self.module(f"{module}.{name}")
                found = Definition(name, f"{module}.{name}", path, tree)
        except MissingSymbolError:
            return None
        return found


@dataclass(frozen=True)
class _Members:
    """The statements that bind names in the body of a module or class."""

    owner: ast.AST

    @cached_property
    def statements(self) -> list[ast.stmt]:
        return list(_flat(getattr(self.owner, "body", [])))

    @property
    def imports(self) -> list[ast.ImportFrom]:
        return [node for node in self.statements if isinstance(node, ast.ImportFrom)]

    def named(self, name: str, skip: ast.AST | None = None) -> ast.stmt | None:
        """The last statement that defines `name`: an overload comes before its function."""
        for node in reversed(self.statements):
            if node is not skip and name in _bound_names(node):
                return node
        return None

    def assigned_to_self(self, name: str) -> ast.stmt | None:
        """An assignment to `self.name` in any method of a class."""
        for node in ast.walk(self.owner):
            for target in _targets(node):
                if (
                    isinstance(target, ast.Attribute)
                    and target.attr == name
                    and isinstance(target.value, ast.Name)
                    and target.value.id == "self"
                ):
                    return node  # type: ignore[return-value]
        return None


def _flat(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a body, those under `if` and `try` included."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _flat([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            handlers = [statement for handler in node.handlers for statement in handler.body]
            yield from _flat([*node.body, *handlers, *node.orelse, *node.finalbody])


def _bound_names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    return {target.id for target in _targets(node) if isinstance(target, ast.Name)}


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """Targets of an assignment, those inside a tuple one by one."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    else:
        return
    for target in targets:
        yield from target.elts if isinstance(target, ast.Tuple) else [target]


def _import_origin(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """The absolute name of the module that a `from ... import` reads."""
    if not node.level:
        return node.module or ""
    package = module.split(".")
    package = package[: len(package) - node.level + is_package]
    return ".".join([*package, node.module] if node.module else package)


def _function_signature(node: ast.FunctionDef | ast.AsyncFunctionDef, bound: bool) -> Signature:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    without_default = len(positional) - len(arguments.defaults)
    defaults = [None] * without_default + [ast.unparse(value) for value in arguments.defaults]
    parameters = [
        Parameter(argument.arg, default)
        for argument, default in zip(positional, defaults, strict=True)
    ]
    is_static = any(
        isinstance(decorator, ast.Name) and decorator.id == "staticmethod"
        for decorator in node.decorator_list
    )
    if bound and not is_static:
        parameters = parameters[1:]
    parameters += [
        Parameter(argument.arg, None if value is None else ast.unparse(value), positional=False)
        for argument, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return Signature(
        tuple(parameters),
        any_positional=arguments.vararg is not None,
        any_keyword=arguments.kwarg is not None,
    )


def field_parameter(node: ast.AST) -> Parameter | None:
    """The constructor parameter that an annotated class attribute stands for, if any."""
    if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
        return None
    if ast.unparse(node.annotation).startswith("ClassVar"):
        return None
    value = node.value
    if not (isinstance(value, ast.Call) and ast.unparse(value.func) in {"field", "Field"}):
        return Parameter(node.target.id, None if value is None else ast.unparse(value))
    options = {keyword.arg: keyword.value for keyword in value.keywords}
    if "init" in options and ast.unparse(options["init"]) == "False":
        return None
    if "default_factory" in options:
        return Parameter(node.target.id, f"{ast.unparse(options['default_factory'])}()")
    default = options.get("default") or (value.args[0] if value.args else None)
    return Parameter(node.target.id, None if default is None else ast.unparse(default))
