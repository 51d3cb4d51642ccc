"""Rules of CONTRIBUTING.md that a machine can keep."""

import re

import pytest

from tests.lint import workspace

_CODE = (".py", ".bzl", ".sh")
_MAX_LINES = 600
# Readers may be sent to project pages; package registries come from the machine's configuration.
_REGISTRY_HOSTS = re.compile(
    r"(pypi\.org|pythonhosted\.org|deb\.debian\.org|snapshot\.debian\.org|"
    r"ftp\.[a-z]+\.debian\.org|registry\.npmjs\.org)"
)
_THIS_FILE = "tests/lint/rules_test.py"


def _text(name: str) -> str:
    # Shipped data is packed: no text, and nothing is named in it.
    return (workspace.root() / name).read_text(encoding="utf-8", errors="replace")


_FILES = [str(file.relative_to(workspace.root())) for file in workspace.files()]


@pytest.mark.parametrize("name", [name for name in _FILES if name.endswith(_CODE)])
def test_file_is_short_enough_to_hold_in_the_head(name: str) -> None:
    assert len(_text(name).splitlines()) <= _MAX_LINES


@pytest.mark.parametrize("name", [name for name in _FILES if name != _THIS_FILE])
def test_no_registry_host_is_named(name: str) -> None:
    found = _REGISTRY_HOSTS.search(_text(name))
    assert not found, f"{name} names {found and found[0]}"


@pytest.mark.parametrize("name", [name for name in _FILES if name.endswith((*_CODE, ".bazel"))])
def test_no_unfinished_work(name: str) -> None:
    marks = ("TO" + "DO", "FIX" + "ME", "X" * 3)
    assert not [mark for mark in marks if re.search(rf"\b{mark}\b", _text(name))]
