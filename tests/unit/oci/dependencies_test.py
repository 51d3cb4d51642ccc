"""A package that others need and the lock lacks ends the build."""

from pathlib import Path

import pytest

from tests.unit.oci.packages import write_deb
from tools.oci.deb import Deb
from tools.oci.dependencies import require_dependencies
from tools.oci.errors import ImageError


def package(folder: Path, name: str, fields: str = "") -> Deb:
    return Deb(write_deb(folder, name, {}, fields=fields))


@pytest.fixture
def shell(tmp_path: Path) -> Deb:
    fields = "Pre-Depends: libc (>= 2), python:any\nDepends: awk | mawk (= 1)\nSection: base\n"
    return package(tmp_path, "shell", fields)


def test_what_is_in_the_lock_below_or_provided_is_there(shell: Deb, tmp_path: Path) -> None:
    provides = package(tmp_path, "gawk", "Provides: other (= 1), awk\n")
    require_dependencies([shell, provides, package(tmp_path, "libc")], ["python"], [])


def test_a_missing_package_is_named_with_who_needs_it(shell: Deb) -> None:
    with pytest.raises(ImageError, match=r"^shell 1-1 needs awk or mawk, which no package of the"):
        require_dependencies([shell], ["libc", "python"], [])


def test_a_package_may_be_left_out_on_purpose(shell: Deb) -> None:
    require_dependencies([shell], ["libc", "python"], ["mawk"])


def test_a_package_that_nobody_asks_for_need_not_be_left_out(shell: Deb) -> None:
    with pytest.raises(ImageError, match="no package asks for perl"):
        require_dependencies([shell], ["libc", "python", "awk"], ["perl"])
