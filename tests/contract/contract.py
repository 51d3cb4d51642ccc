"""A contract: what one symbol of a third-party package must be, and who relies on it."""

from dataclasses import dataclass

from tests.contract.expectations import Expectation
from tests.contract.source import MissingSymbolError, Source


@dataclass(frozen=True)
class Contract:
    """One line of the tables in `*_contracts.py`.

    Attributes:
        symbol: `package.module:Class.member`, as the relying code imports it.
        expected: what the source of the package must say about it.
        used_by: the files that rely on it: a patch by its file name, other code by its path.
        why: what goes wrong when it no longer holds.
    """

    symbol: str
    expected: Expectation
    used_by: tuple[str, ...]
    why: str

    @property
    def package(self) -> str:
        """The package that must keep the contract."""
        return self.symbol.partition(".")[0].partition(":")[0]


@dataclass(frozen=True)
class Verdict:
    """A contract compared with one version of its package."""

    contract: Contract
    holds: bool
    found: str


def check(contract: Contract, source: Source) -> Verdict:
    """Compare one contract with the source; a missing symbol is a broken contract."""
    try:
        finding = contract.expected.read(source, source.find(contract.symbol))
    except MissingSymbolError as error:
        return Verdict(contract, False, str(error))
    return Verdict(contract, finding.holds, finding.found)
