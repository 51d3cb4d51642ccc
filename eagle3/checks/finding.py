"""What a check says."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """One line: `fail` is what will not work, `warn` what may not, or gives something unexpected.

    `fix` is what to do about it, empty where the verdict is `ok`.
    """

    check: str
    verdict: Verdict
    found: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.check}: {self.found}" + (f"; {self.fix}" if self.fix else "")
