"""Each package of the stack finds what it asks for, but for what the stack's overrides leave out.

Environments are installed without looking at dependencies: a package that left the lock would
otherwise be missed by the first program that needs it.
"""

import os
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from runfiles import Runfiles


def overrides() -> dict[NormalizedName, Requirement]:
    """Name -> what is taken in place of any requirement for it."""
    runfiles = Runfiles.Create()
    found = runfiles.Rlocation(os.environ["OVERRIDES"]) if runfiles else None
    assert found
    lines = Path(found).read_text(encoding="utf-8").splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(one.name): one for one in requirements}


def unmet(installed: Iterable[Distribution]) -> Iterator[str]:
    """A line for each requirement without extras that `installed` does not meet."""
    replaced = overrides()
    versions = {canonicalize_name(one.name): one for one in installed}
    for distribution in versions.values():
        for line in distribution.requires or ():
            wanted = Requirement(line)
            if wanted.marker and not wanted.marker.evaluate({"extra": ""}):
                continue
            name = canonicalize_name(wanted.name)
            wanted = replaced.get(name, wanted)
            if name in replaced and wanted.marker and not wanted.marker.evaluate():
                continue
            there = versions.get(name)
            if not there or not wanted.specifier.contains(there.version, prereleases=True):
                seen = there.version if there else "none"
                yield f"{distribution.name} needs {wanted}, and the stack has {seen}"


def test_the_stack_is_whole() -> None:
    assert list(unmet(distributions())) == []


def test_a_package_that_left_is_named() -> None:
    rest = [one for one in distributions() if one.name != "idna"]
    assert "requests needs idna<4,>=2.5, and the stack has none" in list(unmet(rest))
