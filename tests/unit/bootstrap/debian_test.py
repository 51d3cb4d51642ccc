"""Packages come from the cache, else from the archive; other bytes and versions are refused."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.bootstrap.machine import Machine, pins_of
from tests.unit.bootstrap.wait import wait_for
from tools.bootstrap import debian
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.pins import Pins


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def fetch(machine: Machine, pins: Pins, *, strict: bool = False) -> debian.Packages:
    return debian.fetch(pins, machine.cache, what="the test", strict=strict)


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.glob(".stage-*")]


def test_pinned_packages_are_fetched_and_unpacked(machine: Machine) -> None:
    pins = pins_of(
        machine.publish("liba", "1:1.0-1", {"usr/lib/a": "A"}),
        machine.publish("libb", "2.0+x-1", {"usr/lib/b": "B"}),
    )
    packages = fetch(machine, pins)
    debian.unpack(packages, machine.folder / "root")
    assert packages.state == "pinned"
    assert (machine.folder / "root/usr/lib/a").read_text() == "A"
    assert (machine.folder / "root/usr/lib/b").read_text() == "B"
    assert leftovers(machine.cache / "debs") == []


def test_cached_packages_need_no_network_even_when_their_pin_has_expired(machine: Machine) -> None:
    pins = pins_of(machine.publish("liba", "1", {"a": "A"}))
    first = fetch(machine, pins)
    machine.withdraw("liba")
    machine.cut_network()
    calls = machine.apt_calls()
    assert fetch(machine, pins, strict=True) == first
    assert machine.apt_calls() == calls


def test_a_damaged_file_of_the_cache_is_fetched_again(machine: Machine) -> None:
    pins = pins_of(machine.publish("liba", "1", {"a": "A"}))
    (file,) = fetch(machine, pins).files
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert fetch(machine, pins).files == (file,)
    assert file.read_bytes() == whole


def test_other_bytes_than_the_pinned_are_refused(machine: Machine) -> None:
    pin = machine.publish("liba", "1", {"a": "A"})
    (machine.archive / "tampered").touch()
    with pytest.raises(
        BootstrapError, match=rf"SHA-256 of liba_1_amd64.deb: expected {pin.sha256}"
    ):
        fetch(machine, pins_of(pin))
    assert list((machine.cache / "debs").glob("*.deb")) == []


def test_an_index_with_another_hash_is_refused_before_the_download(machine: Machine) -> None:
    pin = replace(machine.publish("liba", "1", {"a": "A"}), sha256="0" * 64)
    with pytest.raises(BootstrapError, match=rf"liba 1 \(index\): expected {pin.sha256}, found"):
        fetch(machine, pins_of(pin))
    assert [call for call in machine.apt_calls() if call.startswith("download liba")] == []


def test_apt_hash_mismatch_names_file_expected_and_found(machine: Machine) -> None:
    pin = machine.publish("liba", "1", {"a": "A"})
    # As printed by apt 2.6 for a package altered on its mirror.
    mismatch = (
        "E: Failed to fetch https://example.org/pool/liba_1_amd64.deb  Hash Sum mismatch\n"
        "   Hashes of expected file:\n    - SHA256:" + "a" * 64 + "\n    - Filesize:3 [weak]\n"
        "   Hashes of received file:\n    - SHA256:" + "b" * 64 + "\n"
    )
    apt = machine.bin / "apt-get"
    lines = apt.read_text().splitlines()
    lines.insert(1, f"case \"$*\" in *'download liba'*) cat <<'E'\n{mismatch}E\nexit 100;; esac")
    apt.write_text("\n".join(lines))
    expected = f"liba_1_amd64.deb: expected {'a' * 64}, found {'b' * 64}"
    with pytest.raises(BootstrapError, match=expected):
        fetch(machine, pins_of(pin))


def test_an_expired_pin_falls_back_to_the_whole_current_set_with_a_warning(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    old = machine.publish("liba", "1", {"a": "old"})
    other = machine.publish("libb", "1", {"b": "old"})
    fetch(machine, pins_of(other))
    machine.publish("liba", "2", {"a": "new"})
    machine.publish("libb", "2", {"b": "new"})
    packages = fetch(machine, pins_of(old, other))
    debian.unpack(packages, machine.folder / "root")
    assert packages.state == "floating"
    assert (machine.folder / "root/a").read_text() == "new"
    assert (machine.folder / "root/b").read_text() == "new"
    warning = capsys.readouterr().err
    assert "WARNING:   Version '1' for 'liba' was not found" in warning
    assert "refresh.py" in warning


def test_an_expired_pin_is_replaced_without_a_download_where_the_cache_has_the_current(
    machine: Machine,
) -> None:
    old = machine.publish("liba", "1", {"a": "old"})
    fetch(machine, pins_of(machine.publish("liba", "2", {"a": "new"})))
    packages = fetch(machine, pins_of(old))
    assert packages.state == "floating"
    debian.unpack(packages, machine.folder / "root")
    assert (machine.folder / "root/a").read_text() == "new"


def test_a_library_is_followed_through_its_change_of_name(machine: Machine) -> None:
    old = machine.publish("libabsl20250127", "1", {"absl": "old"})
    root = machine.publish("tool", "1", {"tool": "T"})
    machine.withdraw("libabsl20250127")
    machine.publish("libabsl20260526", "2", {"absl": "new"})
    machine.publish("default-jdk", "25", {"jdk": "not wanted"})
    packages = fetch(machine, pins_of(root, old, roots=("tool",)))
    debian.unpack(packages, machine.folder / "root")
    found = {path.name: path.read_text() for path in (machine.folder / "root").iterdir()}
    assert found == {"tool": "T", "absl": "new"}


def test_strict_refuses_an_expired_pin(machine: Machine) -> None:
    pin = machine.publish("liba", "1", {"a": "old"})
    machine.publish("liba", "2", {"a": "new"})
    with pytest.raises(BootstrapError, match="EAGLE3_STRICT refuses other versions"):
        fetch(machine, pins_of(pin), strict=True)
    assert list((machine.cache / "debs").glob("*.deb")) == []


def test_no_network_is_no_expired_pin(machine: Machine) -> None:
    pins = pins_of(machine.publish("liba", "1", {"a": "A"}))
    machine.cut_network()
    with pytest.raises(BootstrapError, match=r"is the network up\?\): Failed to fetch InRelease"):
        fetch(machine, pins)


def test_sources_without_debian_are_named(machine: Machine) -> None:
    pins = pins_of(machine.publish("liba", "1", {"a": "A"}))
    machine.write_program(machine.bin / "apt-get", "exit 0")
    with pytest.raises(BootstrapError, match="apt sources name no Debian archive"):
        fetch(machine, pins)


def test_a_missing_keyring_is_named(machine: Machine) -> None:
    pins = pins_of(machine.publish("liba", "1", {"a": "A"}))
    (machine.folder / "keyring").unlink()
    with pytest.raises(BootstrapError, match="apt-get install debian-archive-keyring"):
        fetch(machine, pins)


def test_a_killed_download_is_neither_trusted_nor_in_the_way(machine: Machine) -> None:
    pin = machine.publish("liba", "1", {"a": "A"})
    (machine.archive / "slow").touch()
    process = machine.start(
        "from tools.bootstrap.pins import Pin, Pins\n"
        f"pins = Pins(('trixie',), (), (), ({pin!r},), ())\n"
        f"debian.fetch(pins, Path({str(machine.cache)!r}), what='the test', strict=False)\n"
    )
    debs = machine.cache / "debs"
    wait_for(lambda: list(debs.glob(".stage-*/debs/liba_*.deb")))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert leftovers(debs) != []
    (machine.archive / "slow").unlink()
    packages = fetch(machine, pins_of(pin))
    assert packages.state == "pinned"
    assert leftovers(debs) == []


def test_a_lookup_that_fails_otherwise_is_no_expired_pin(machine: Machine) -> None:
    pin = machine.publish("liba", "1", {"a": "A"})
    (machine.archive / "damaged").touch()
    with pytest.raises(BootstrapError, match="cannot look up packages: The package cache is"):
        fetch(machine, pins_of(pin))
