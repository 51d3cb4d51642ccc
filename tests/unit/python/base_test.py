"""The shared packages stay as they are, whatever happens in a copy."""

import importlib.util
import marshal
from pathlib import Path

import pytest

from tools.python.environment import base


@pytest.fixture
def source(tmp_path: Path) -> Path:
    package = tmp_path / "base" / "pkg"
    package.mkdir(parents=True)
    (package / "module.py").write_text("VALUE = 1\n")
    (package / "link.py").symlink_to("module.py")
    base.compile_tree(tmp_path / "base")
    return tmp_path / "base"


def _byte_code(site: Path) -> Path:
    return Path(importlib.util.cache_from_source(str(site / "pkg/module.py")))


def test_linked_files_share_their_bytes(source: Path, tmp_path: Path) -> None:
    base.link_tree(source, tmp_path / "copy")
    assert (tmp_path / "copy/pkg/module.py").samefile(source / "pkg/module.py")
    assert (tmp_path / "copy/pkg/link.py").is_symlink()


def test_compiling_a_patched_file_leaves_the_base_alone(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    base.link_tree(source, copy)
    before = _byte_code(source).read_bytes()
    (copy / "pkg/module.py").unlink()
    (copy / "pkg/module.py").write_text("VALUE = 2\n")
    base.compile_files(copy, ["pkg/module.py"])
    assert _byte_code(source).read_bytes() == before
    assert _byte_code(copy).read_bytes() != before


def test_byte_code_names_no_folder_and_no_time(source: Path) -> None:
    content = _byte_code(source).read_bytes()
    flags = int.from_bytes(content[4:8], "little")
    assert flags == 0b01  # by hash of the source, and the source is never looked at
    assert marshal.loads(content[16:]).co_filename == "pkg/module.py"
