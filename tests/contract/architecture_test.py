"""Only eagle3/engine knows vLLM and speculators, and each name it knows is under contract."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.catalogue import CONTRACTS, PACKAGES, installed
from tests.contract.relying import GENERATOR, NOT_A_FILE, WORKER
from tests.contract.runfile import runfile

ROOT = runfile("WORKSPACE").resolve().parent
PRIVATE = {"vllm", "speculators"}
ENGINE = "eagle3/engine"
SYMBOLS = {contract.symbol for contract in CONTRACTS}


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Module and name of every import; the name is empty for `import module`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.module or "", alias.name) for alias in node.names)


def private_names(file: Path) -> set[str]:
    """`module:name` of what a file imports from the private packages."""
    found = imported(ast.parse(file.read_text(encoding="utf-8")))
    return {f"{module}:{name}" for module, name in found if module.split(".")[0] in PRIVATE}


def python_files(folder: str) -> dict[str, Path]:
    """Path from the repository's root -> file, of all that is below a folder of it."""
    return {str(file.relative_to(ROOT)): file for file in ROOT.glob(f"{folder}/**/*.py")}


def test_only_the_engine_imports_private_packages() -> None:
    python = python_files("eagle3") | python_files("third_party") | python_files("tools")
    others = {path: file for path, file in python.items() if path not in python_files(ENGINE)}
    assert len(others) > len(python_files(ENGINE)) > 0
    offenders = {p: names for p, file in others.items() if (names := private_names(file))}
    assert offenders == {}


def under_contract(name: str) -> bool:
    return any(symbol == name or symbol.startswith(f"{name}.") for symbol in SYMBOLS)


def relying_files() -> dict[str, Path]:
    """The engine's files, and the patched files of speculators, by the names contracts use."""
    site = installed().folders["speculators"].parent
    return python_files(ENGINE) | {path: site / path for path in (GENERATOR, WORKER)}


@pytest.mark.parametrize("file", relying_files())
def test_each_imported_name_is_under_contract(file: str) -> None:
    names = private_names(relying_files()[file])
    assert sorted(name for name in names if not under_contract(name)) == []


@pytest.mark.parametrize("file", python_files(ENGINE))
def test_each_variable_set_for_vllm_is_under_contract(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    variables = set(re.findall(r"VLLM_[A-Z0-9_]+", text))
    known = {str(c.expected).partition("knows ")[2] for c in CONTRACTS if "vllm.envs:" in c.symbol}
    assert sorted(variables - known) == []


def exists(used_by: str) -> bool:
    if used_by.endswith(".patch"):
        return any(ROOT.glob(f"third_party/*/patches/{used_by}"))
    return used_by in NOT_A_FILE or used_by in relying_files() or (ROOT / used_by).exists()


def test_whoever_relies_on_a_contract_exists() -> None:
    named = {name for contract in CONTRACTS for name in contract.used_by}
    assert sorted(name for name in named if not exists(name)) == []


def test_every_package_under_contract_is_installed() -> None:
    assert set(PACKAGES) == set(installed().folders)
