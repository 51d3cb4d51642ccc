"""The report on a folder: what it prints and how it exits."""

from pathlib import Path

import pytest

from tests.contract.catalogue import installed
from tests.contract.report import main


def link_package(site: Path, package: str) -> Path:
    """A copy of a package by links, so that a test can change one file of it."""
    origin = installed().folders[package]
    for path in origin.rglob("*.py"):
        copy = site / package / path.relative_to(origin)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.symlink_to(path)
    return site / package


def test_installed_packages_keep_all_contracts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "BROKEN" not in capsys.readouterr().out


def test_a_changed_default_breaks_its_contract_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = link_package(tmp_path, "vllm") / "config" / "cache.py"
    text = changed.read_text()
    changed.unlink()
    changed.write_text(
        text.replace("enable_prefix_caching: bool = True", "enable_prefix_caching: bool = False")
    )
    assert main(["--site", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert out.count("BROKEN") == 1
    assert "BROKEN: False" in out
    assert "speculators: not there, not compared" in out


def test_a_relative_site_means_the_folder_the_user_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    link_package(tmp_path / "unpacked", "vllm")
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    assert main(["--site", "unpacked"]) == 0


def test_a_folder_without_the_packages_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--site", str(tmp_path)]) == 2
    assert "none of" in capsys.readouterr().err


def test_all_prints_the_contracts_that_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--all"]) == 0
    assert "is True by default" in capsys.readouterr().out
