"""The lock files that ship, and their renewal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.bootstrap.machine import Machine, pins_of
from tools.bootstrap import bazel, interpreter, refresh
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.pins import read_pins, write_pins


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize("lock", [bazel.LOCK, interpreter.LOCK], ids=lambda lock: lock.name)
def test_each_pin_that_ships_is_whole_and_stands_once(lock: Path) -> None:
    pins = read_pins(lock)
    names = [pin.name for pin in pins.debs]
    assert names == sorted(set(names))
    assert set(pins.extra) <= set(names)
    for pin in pins.debs + pins.wheels:
        assert re.fullmatch("[0-9a-f]{64}", pin.sha256), pin
        assert pin.size > 0, pin
        assert pin.version, pin
    # A mirror is the machine's business.
    assert "://" not in lock.read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"suites": ["trixie"],', "JSONDecodeError"),
        ('{"suites": [], "roots": [], "extra": [], "debs": []}', "KeyError: 'wheels'"),
        ('{"suites": [], "roots": [], "extra": [], "debs": [{"name": "a"}]}', "TypeError"),
    ],
)
def test_a_lock_that_was_broken_by_hand_is_told_in_one_line(
    text: str, words: str, tmp_path: Path
) -> None:
    lock = tmp_path / "base.lock.json"
    lock.write_text(text)
    with pytest.raises(
        BootstrapError, match=rf"base\.lock\.json is not a lock \({words}.*"
    ) as seen:
        read_pins(lock)
    assert "\n" not in str(seen.value)


def test_the_shipped_bazel_is_the_one_of_bazelisk() -> None:
    (client,) = (pin for pin in read_pins(bazel.LOCK).debs if pin.name == "bazel-bootstrap")
    version = (Path(__file__).parents[3] / ".bazelversion").read_text().strip()
    assert client.version.startswith(f"{version}+")


def test_renewed_pins_are_the_current_ones_and_a_second_run_changes_nothing(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = machine.folder / "test.lock.json"
    names = ["libe", "liba", "libd", "libb", "libc"]
    write_pins(lock, pins_of(*(machine.publish(name, "1", {name: "1"}) for name in names)))
    new = machine.publish("libb", "2", {"b": "2"})
    refresh.refresh(lock)
    assert [pin.name for pin in read_pins(lock).debs] == sorted(names)
    assert new in read_pins(lock).debs
    text = lock.read_text()
    refresh.refresh(lock)
    assert lock.read_text() == text
    assert "5 packages, 0 changed" in capsys.readouterr().err.splitlines()[-1]


def test_another_major_version_of_bazel_is_not_pinned(machine: Machine) -> None:
    lock = machine.folder / "bazel.lock.json"
    write_pins(lock, pins_of(machine.publish("bazel-bootstrap", "7.7.1-1", {"a": ""})))
    before = lock.read_text()
    machine.publish("bazel-bootstrap", "8.0.0-1", {"a": ""})
    with pytest.raises(BootstrapError, match="now has Bazel 8"):
        refresh.refresh(lock)
    assert lock.read_text() == before
