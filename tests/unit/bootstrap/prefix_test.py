"""One process at a time; what it leaves behind when killed is swept away."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.unit.bootstrap.machine import Machine
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.prefix import exclusive, staging


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def holder(folder: Path, *, release: str) -> str:
    return (
        "from tools.bootstrap.prefix import exclusive, staging\n"
        f"folder = Path({str(folder)!r})\n"
        "with exclusive(folder, 'building'), staging(folder) as stage:\n"
        "    (stage / 'half').touch()\n"
        "    print('held', flush=True)\n"
        f"    {release}\n"
        "    (stage.parent / 'done').touch()\n"
    )


def test_the_second_process_waits_and_says_so(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = machine.folder / "shared"
    said: list[str] = []
    with machine.start(holder(folder, release="input()")) as process:
        asking = process.stdin
        assert asking is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"

        def release(line: str) -> None:
            said.append(line)
            asking.write("\n")
            asking.flush()

        monkeypatch.setattr("tools.bootstrap.prefix.say", release)
        with exclusive(folder, "building"):
            assert (folder / "done").exists()
        process.communicate()
    assert said == ["another process is building; waiting for it"]


def test_a_killed_holder_blocks_nobody_and_its_stage_is_swept(machine: Machine) -> None:
    folder = machine.folder / "shared"
    with machine.start(holder(folder, release="import time; time.sleep(600)")) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    (left,) = folder.glob(".stage-*")
    assert (left / "half").exists()
    with exclusive(folder, "building"), staging(folder):
        assert not left.exists()


def test_a_stage_goes_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), staging(tmp_path):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file/cache"
    with (
        pytest.raises(BootstrapError, match=rf"cannot write {folder} .*set EAGLE3_CACHE"),
        exclusive(folder, "building"),
    ):
        pass
