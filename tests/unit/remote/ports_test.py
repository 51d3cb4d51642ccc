"""Ports that stay free until the program that is to listen has started."""

import socket
from pathlib import Path

import pytest

from tools.remote import ports


def system_begins_at(port: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "range").write_text(f"{port}\t60999\n")
    monkeypatch.setattr(ports, "_OF_THE_SYSTEM", folder / "range")


def test_the_system_gives_them_to_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system_begins_at(20_000, tmp_path, monkeypatch)
    found = ports.free_ports(50)
    assert len(set(found)) == 50
    assert min(found) >= 10_000
    assert max(found) < 20_000


def test_one_that_is_taken_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "_FIRST", port)
        system_begins_at(port + 1, tmp_path, monkeypatch)
        [found] = ports.free_ports(1)
    assert found != port


def test_where_all_are_the_systems_it_gives_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system_begins_at(1024, tmp_path, monkeypatch)
    assert len(set(ports.free_ports(3))) == 3


def test_a_program_answers_once_it_listens() -> None:
    with socket.socket() as program:
        program.bind(("127.0.0.1", 0))
        port = program.getsockname()[1]
        assert not ports.answers(port)
        program.listen()
        assert ports.answers(port)
