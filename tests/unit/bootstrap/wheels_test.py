"""Wheels come from the cache, else through pip; other bytes than the pinned are refused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.bootstrap.machine import Machine
from tools.bootstrap import wheels
from tools.bootstrap.errors import BootstrapError


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(wheels.host, "require_pip", lambda: None)
    return Machine(tmp_path, monkeypatch)


def test_a_wheel_is_fetched_once(machine: Machine) -> None:
    pin = machine.publish_wheel("tool", "1.0", {"tool/data": "D"})
    first = wheels.fetch([pin], machine.cache, what="the test")
    machine.cut_network()
    assert wheels.fetch([pin], machine.cache, what="the test") == first
    wheels.unpack(first["tool"], machine.folder / "out")
    assert (machine.folder / "out/tool/data").read_text() == "D"


def test_other_bytes_than_the_pinned_are_refused(machine: Machine) -> None:
    pin = replace(machine.publish_wheel("tool", "1.0", {"a": "A"}), sha256="0" * 64)
    with pytest.raises(BootstrapError, match=f"tool-1.0-py3-none-any.whl: expected {'0' * 64}"):
        wheels.fetch([pin], machine.cache, what="the test")


def test_pip_naming_another_hash_is_told_in_one_line() -> None:
    # As printed by pip 25.1.
    output = (
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have\n"
        "    tool==1.0 from https://example.org/tool-1.0.whl:\n"
        "        Expected sha256 aaaa\n"
        "             Got        bbbb\n"
    )
    told = wheels._explain(output)
    assert told.startswith("wrong SHA-256 of a wheel: tool==1.0 from")
    assert told.endswith("Expected sha256 aaaa Got bbbb")


def test_settings_that_pip_cannot_read_are_told_in_one_line() -> None:
    # As printed by pip 25.1.
    output = (
        "Configuration file could not be loaded.\nFile contains no section headers.\n"
        "file: '/etc/pip.conf', line: 1\n'[global\\n'\n"
    )
    told = wheels._explain(output)
    assert told.startswith("pip cannot read its settings: Configuration file could not be loaded.")
    assert told.endswith("file: '/etc/pip.conf', line: 1 '[global\\n'; mend that file")


def test_no_network_says_what_to_check(machine: Machine) -> None:
    pin = machine.publish_wheel("tool", "1.0", {"a": "A"})
    machine.cut_network()
    with pytest.raises(BootstrapError, match="No matching distribution found; check the network"):
        wheels.fetch([pin], machine.cache, what="the test")


def test_a_package_of_the_current_folder_does_not_hide_pip(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = machine.publish_wheel("tool", "1.0", {"a": "A"})
    (machine.folder / "pip.py").write_text("raise SystemExit('the wrong pip')")
    monkeypatch.chdir(machine.folder)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    assert "PYTHONPATH" in os.environ
    assert "tool" in wheels.fetch([pin], machine.cache, what="the test")


def test_a_pip_that_installs_in_virtual_environments_alone_may_fetch(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_REQUIRE_VIRTUALENV", "1")
    pin = machine.publish_wheel("tool", "1.0", {"a": "A"})
    assert "tool" in wheels.fetch([pin], machine.cache, what="the test")
