"""Every patch of the repository is in the packages that run, whole and alone."""

import hashlib
import importlib
import re
from collections import defaultdict
from pathlib import Path

import eagle3_stack
import pytest

from tests.contract.runfile import runfile
from tests.contract.undo import undo
from tools.python.environment.patching import FileChange, Patch, read_patch

PACKAGES = ("speculators", "vllm")
HEADER = ("Symptom", "Cause", "Upstream( version)?", "Evidence")
SITE = Path(eagle3_stack.__file__).parent


def patch_files(package: str) -> list[Path]:
    """The patches of a package in the repository; a package that needs none has no folder."""
    try:
        return sorted(runfile(f"third_party/{package}/patches").glob("*.patch"))
    except FileNotFoundError:
        return []


def applied(package: str) -> dict[str, str]:
    """What the running package itself says of its patches."""
    if not (SITE / package / "applied_patches.py").exists():
        return {}
    return importlib.import_module(f"{package}.applied_patches").PATCHES


def digests(package: str) -> dict[str, str]:
    """File name -> SHA-256 of the patches in the repository."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in patch_files(package)
    }


PATCHES = [read_patch(file) for package in PACKAGES for file in patch_files(package)]


def changes_by_file() -> dict[str, list[FileChange]]:
    """Installed file -> the changes of all patches to it, in the order they are applied."""
    changes = defaultdict(list)
    for patch in PATCHES:
        for change in patch.changes:
            changes[change.path].append(change)
    return changes


@pytest.mark.parametrize("package", PACKAGES)
def test_the_package_names_the_patches_of_the_repository(package: str) -> None:
    assert applied(package) == digests(package)


def test_there_are_patches() -> None:
    assert applied("speculators")


def test_the_stack_names_the_patches_of_the_repository() -> None:
    repository = {name: digest for p in PACKAGES for name, digest in digests(p).items()}
    assert repository == eagle3_stack.PATCHES


@pytest.mark.parametrize("path", changes_by_file())
def test_the_installed_file_is_what_the_patches_leave(path: str) -> None:
    # Backwards from the last patch: a line that a later patch changed again comes back first.
    lines = (SITE / path).read_text(encoding="utf-8").splitlines(keepends=True)
    for change in reversed(changes_by_file()[path]):
        lines = undo(lines, change.hunks)
    creates = changes_by_file()[path][0].creates
    assert bool(lines) is not creates


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_the_patch_says_why_it_is_there(patch: Patch) -> None:
    missing = [word for word in HEADER if not re.search(rf"^{word}: \S", patch.header, re.M)]
    assert not missing, f"{patch.name} says nothing of: {', '.join(missing)}"


@pytest.mark.parametrize("package", PACKAGES)
def test_patches_are_applied_in_the_order_of_their_numbers(package: str) -> None:
    numbers = [name.partition("-")[0] for name in applied(package)]
    assert numbers == sorted(set(numbers))
    assert all(re.fullmatch(r"\d\d", number) for number in numbers)
