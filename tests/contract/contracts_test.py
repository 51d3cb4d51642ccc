"""Every contract with the installed packages, one case each, and all of them in one table."""

import ast
from copy import deepcopy
from dataclasses import replace
from functools import cache

import pytest

from tests.contract.catalogue import CONTRACTS, installed
from tests.contract.contract import Contract, Verdict, check
from tests.contract.expectations import Exists, Lacks
from tests.contract.report import table
from tests.contract.source import MissingSymbolError, Source


@cache
def source() -> Source:
    return installed()


@cache
def verdict(contract: Contract) -> Verdict:
    return check(contract, source())


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda c: f"{c.symbol} {c.expected}")
def test_contract_holds(contract: Contract) -> None:
    assert verdict(contract).holds, f"{contract.why}\n{table([verdict(contract)])}"


def test_all_contracts_in_one_table() -> None:
    broken = [verdict(contract) for contract in CONTRACTS if not verdict(contract).holds]
    assert not broken, f"{len(broken)} of {len(CONTRACTS)} contracts are broken\n{table(broken)}"


def test_no_contract_is_written_twice() -> None:
    lines = [(contract.symbol, str(contract.expected)) for contract in CONTRACTS]
    assert sorted({line for line in lines if lines.count(line) > 1}) == []


class _ChangeEverything(ast.NodeTransformer):
    """Other names, other constants, one more required parameter: nothing stays as it was."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name in ("id", "attr", "arg", "name"):
            if isinstance(getattr(node, name, None), str):
                setattr(node, name, f"{getattr(node, name)}_changed")
        if isinstance(node, ast.Constant):
            node.value = f"changed {node.value!r}"
        if isinstance(node, ast.arguments):
            node.kwonlyargs.append(ast.arg("added"))
            node.kw_defaults.append(None)
        if isinstance(node, ast.ClassDef):
            node.body.append(ast.parse("added: int").body[0])
        return super().generic_visit(node)


@pytest.mark.parametrize(
    "contract",
    [contract for contract in CONTRACTS if not isinstance(contract.expected, Exists | Lacks)],
    ids=lambda c: f"{c.symbol} {c.expected}",
)
def test_contract_fails_on_changed_code(contract: Contract) -> None:
    definition = source().find(contract.symbol)
    changed = _ChangeEverything().visit(deepcopy(definition.node))
    try:
        finding = contract.expected.read(source(), replace(definition, node=changed))
    except MissingSymbolError:
        return
    assert not finding.holds, finding.found


def test_contract_fails_on_a_name_that_is_gone() -> None:
    contract = Contract("vllm.v1.request:Request.no_such_name", Exists(), (), "")
    assert verdict(contract) == Verdict(contract, False, "no member no_such_name in Request")
