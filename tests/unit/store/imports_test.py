"""The store and the chat package stay free of engines and of training code."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import eagle3.chat
import eagle3.store

# What each may import besides the standard library.
ALLOWED = {
    "eagle3.chat": {"eagle3.errors", "eagle3.chat", "jinja2", "msgspec", "transformers"},
    "eagle3.store": {"eagle3.errors", "eagle3.store", "torch", "xxhash"},
}


def imported(path: Path) -> Iterator[str]:
    """Every module that the file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{path}: imports begin at the root"
            yield node.module


@pytest.mark.parametrize("package", [eagle3.chat, eagle3.store], ids=lambda p: p.__name__)
def test_imports_are_the_allowed_ones(package: ModuleType) -> None:
    files = list(Path(package.__path__[0]).glob("*.py"))
    assert len(files) > 5
    allowed = ALLOWED[package.__name__] | sys.stdlib_module_names
    for path in files:
        for module in imported(path):
            parents = {module[:dot] for dot, c in enumerate(module) if c == "."} | {module}
            assert parents & allowed, f"{path.name} imports {module}"
