"""The variables that one engine and its workers find."""

import os
from pathlib import Path

import pytest

from eagle3.engine import environment
from eagle3.engine.architecture import read_architecture
from eagle3.engine.environment import set_environment
from tests.unit.tiny_target import make_target


class Machine:
    """Says what vLLM is told where the system's own ports begin at a number, or are not told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._range = folder / "range"
        self._target = read_architecture(make_target(folder / "target"))
        monkeypatch.setattr(environment, "_PORTS_OF_THE_SYSTEM", self._range)
        # A copy; a cluster names its services by such variables.
        monkeypatch.setattr(os, "environ", os.environ | {"VLLM_PORT": "tcp://10.0.0.1:8000"})

    def port(self, system_begins_at: int | None) -> str | None:
        if system_begins_at is not None:
            self._range.write_text(f"{system_begins_at}\t60999\n")
        set_environment(self._target, 1, 64, sockets=self._range.parent, verbose=False)
        return os.environ.get("VLLM_PORT")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_ranks_meet_where_the_system_sends_nobody_else(machine: Machine) -> None:
    found = {machine.port(20_000) for _ in range(4)}
    assert all(port is not None and 10_000 <= int(port) < 19_900 for port in found)
    assert len(found) > 1


@pytest.mark.parametrize("system_begins_at", [1024, None])
def test_where_all_ports_are_the_systems_vllm_asks_for_one(
    system_begins_at: int | None, machine: Machine
) -> None:
    assert machine.port(system_begins_at) is None
