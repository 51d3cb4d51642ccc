"""A GPU test fails where the machine has not what it asks for; it is never skipped."""

import shutil

import pytest
import torch

from tools.remote import gpu_guard


def machine(monkeypatch: pytest.MonkeyPatch, *capabilities: tuple[int, int]) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capabilities[device])


def asked(gpus: int, min_sm: int) -> dict[str, str]:
    return {"EAGLE3_TEST_GPUS": str(gpus), "EAGLE3_TEST_MIN_SM": str(min_sm)}


def test_no_gpu_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch)
    complaint = gpu_guard.missing(asked(1, 80))
    assert complaint
    assert "needs 1 GPU(s) of sm_80 or newer and this machine shows: none" in complaint


def test_an_old_gpu_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, (7, 5), (9, 0))
    assert gpu_guard.missing(asked(1, 90)) is None
    complaint = gpu_guard.missing(asked(2, 90))
    assert complaint
    assert "shows: sm_75, sm_90" in complaint


def test_two_gpus_need_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, (9, 0), (9, 0))
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(total=64 << 20))
    complaint = gpu_guard.missing(asked(2, 90))
    assert complaint
    assert "needs 1024 MB of /dev/shm and there are 64" in complaint
    assert gpu_guard.missing(asked(1, 90)) is None


def test_the_run_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch)
    for name, value in asked(1, 80).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(pytest.exit.Exception) as ended:
        gpu_guard.pytest_sessionstart()
    assert ended.value.returncode == 1
