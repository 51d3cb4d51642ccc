"""RECORD files say what is there."""

import base64
import csv
import hashlib
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from tools.python.environment import record


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/a.py").write_text("a = 1\n")
    record.add_distribution(tmp_path, "pkg", "1.0", ["pkg/a.py"])
    return tmp_path


def _rows(site: Path) -> dict[str, tuple[str, str]]:
    with (site / "pkg-1.0.dist-info/RECORD").open(newline="") as stream:
        return {path: (digest, size) for path, digest, size in csv.reader(stream)}


def _expected(content: bytes) -> tuple[str, str]:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"sha256={digest}", str(len(content))


def test_a_changed_file_gets_its_new_hash(site: Path) -> None:
    (site / "pkg/a.py").write_text("a = 2\n")
    record.refresh(site, ["pkg/a.py"])
    assert _rows(site)["pkg/a.py"] == _expected(b"a = 2\n")


def test_an_added_file_goes_to_the_package_that_owns_it(site: Path) -> None:
    (site / "pkg/b.py").write_text("b = 1\n")
    record.refresh(site, ["pkg/b.py"])
    assert _rows(site)["pkg/b.py"] == _expected(b"b = 1\n")
    assert _rows(site)["pkg/a.py"] == _expected(b"a = 1\n")


def test_a_file_of_nobody_is_refused(site: Path) -> None:
    (site / "stray.py").write_text("")
    with pytest.raises(LookupError, match=r"stray\.py"):
        record.refresh(site, ["stray.py"])


def test_the_record_in_a_cache_is_left_alone(site: Path, tmp_path: Path) -> None:
    linked = site / "linked"
    linked.hardlink_to(site / "pkg-1.0.dist-info/RECORD")
    before = linked.read_text()
    (site / "pkg/a.py").write_text("a = 3\n")
    record.refresh(site, ["pkg/a.py"])
    assert linked.read_text() == before


def test_an_added_distribution_is_known_to_importlib(site: Path) -> None:
    record.add_distribution(site, "vllm", "0.16.0+cpu", folder="vllm-0.0.0")
    distribution = PathDistribution(site / "vllm-0.0.0.dist-info")
    assert (distribution.name, distribution.version) == ("vllm", "0.16.0+cpu")
