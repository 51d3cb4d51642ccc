"""Finds a piece of Python in other Python, by structure: layout and comments do not matter.

A pattern is Python source in which
- `...` stands for any expression, and as a statement for any number of statements,
- `f(a, ..., x=1)` is a call of f with a first, with x=1, and with whatever else,
- an `if` without `else` stands for one with any `else`,
- a name that begins with two underscores, as `__rank`, stands for any expression, the same one
  wherever it comes again.
"""

import ast
from collections.abc import Iterator, Sequence
from textwrap import dedent

Bindings = dict[str, str]


def occurs(pattern: str, tree: ast.AST) -> bool:
    """Whether some statements, or one expression, in `tree` have the form of `pattern`."""
    wanted = ast.parse(dedent(pattern)).body
    if len(wanted) == 1 and isinstance(wanted[0], ast.Expr) and not _is_gap(wanted[0]):
        return any(
            _matches(wanted[0].value, node, {}) is not None
            for node in ast.walk(tree)
            if isinstance(node, ast.expr)
        )
    return any(
        _statements_match([_GAP, *wanted, _GAP], body, {}) is not None for body in _bodies(tree)
    )


_GAP = ast.Expr(ast.Constant(...))


def _is_gap(node: ast.AST) -> bool:
    """Whether a node is the pattern `...`, as an expression or as a statement."""
    value = node.value if isinstance(node, ast.Expr) else node
    return isinstance(value, ast.Constant) and value.value is ...


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                yield body


def _statements_match(
    pattern: Sequence[ast.stmt], body: Sequence[ast.stmt], bindings: Bindings
) -> Bindings | None:
    if not pattern:
        return None if body else bindings
    if _is_gap(pattern[0]):
        for skipped in range(len(body) + 1):
            found = _statements_match(pattern[1:], body[skipped:], bindings)
            if found is not None:
                return found
        return None
    if not body:
        return None
    first = _matches(pattern[0], body[0], bindings)
    return None if first is None else _statements_match(pattern[1:], body[1:], first)


def _matches(pattern: object, node: object, bindings: Bindings) -> Bindings | None:
    """The bindings with which `node` has the form of `pattern`, else None."""
    if isinstance(pattern, ast.Name) and pattern.id.startswith("__") and isinstance(node, ast.AST):
        text = ast.unparse(node)
        known = bindings.get(pattern.id, text)
        return {**bindings, pattern.id: text} if known == text else None
    if isinstance(pattern, ast.expr) and _is_gap(pattern):
        return bindings if isinstance(node, ast.expr) else None
    if isinstance(pattern, ast.Call) and isinstance(node, ast.Call) and _is_open(pattern):
        return _open_call_matches(pattern, node, bindings)
    if isinstance(pattern, list) and isinstance(node, list):
        return _lists_match(pattern, node, bindings)
    if not isinstance(pattern, ast.AST):
        return bindings if pattern == node else None
    if type(pattern) is not type(node):
        return None
    for name in pattern._fields:
        if name in {"ctx", "type_comment", "type_ignores", "kind"}:
            continue
        if name == "orelse" and not pattern.orelse:  # type: ignore[attr-defined]
            continue
        found = _matches(getattr(pattern, name, None), getattr(node, name, None), bindings)
        if found is None:
            return None
        bindings = found
    return bindings


def _lists_match(pattern: list, node: list, bindings: Bindings) -> Bindings | None:
    if any(isinstance(item, ast.stmt) for item in pattern):
        return _statements_match(pattern, node, bindings)
    if len(pattern) != len(node):
        return None
    for wanted, item in zip(pattern, node, strict=True):
        found = _matches(wanted, item, bindings)
        if found is None:
            return None
        bindings = found
    return bindings


def _is_open(call: ast.Call) -> bool:
    return bool(call.args) and _is_gap(call.args[-1])


def _open_call_matches(pattern: ast.Call, node: ast.Call, bindings: Bindings) -> Bindings | None:
    first = pattern.args[:-1]
    found = _matches(pattern.func, node.func, bindings)
    if found is not None:
        found = _lists_match(first, node.args[: len(first)], found)
    for keyword in pattern.keywords:
        given = next((other for other in node.keywords if other.arg == keyword.arg), None)
        if found is None or given is None:
            return None
        found = _matches(keyword.value, given.value, found)
    return found
