"""Which GPUs a host has, and who gets them."""

from pathlib import Path

import pytest

from tools.remote.errors import ServiceError
from tools.remote.gpus import Gpu, detect, gpu_counts, parse, share_out

LISTING = """\
0, NVIDIA H200, 9.0
1, NVIDIA H200, 9.0
2, NVIDIA B200, 10.0
"""


def test_the_drivers_listing_is_read() -> None:
    assert parse(LISTING) == [
        Gpu(0, "nvidia-h200", 90),
        Gpu(1, "nvidia-h200", 90),
        Gpu(2, "nvidia-b200", 100),
    ]


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nvidia-smi, still to be written."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program = tmp_path / "nvidia-smi"
    program.touch(mode=0o755)
    return program


def test_a_driver_without_devices_lists_none(smi: Path) -> None:
    smi.write_text("#!/bin/bash\necho No devices were found\n")
    assert detect() == []


def test_a_driver_in_trouble_is_told(smi: Path) -> None:
    smi.write_text("#!/bin/bash\necho '0, [Unknown Error], [Unknown Error]'\n")
    with pytest.raises(ServiceError, match=r"says: 0, \[Unknown Error\], .*see to the driver"):
        detect()


def test_no_device_is_in_two_slots() -> None:
    slots = share_out(parse(LISTING), [2, 1])
    assert [slot.devices for slot in slots] == ["0,1", "2"]


def test_a_slot_offers_every_level_up_to_its_weakest_device() -> None:
    (slot,) = share_out(parse(LISTING), [3])
    offers = slot.properties()
    assert ("gpu-count", "3") in offers
    assert [value for key, value in offers if key == "gpu-sm"] == ["80", "89", "90"]
    assert [value for key, value in offers if key == "gpu"] == [
        "nvidia",
        "nvidia-b200",
        "nvidia-h200",
    ]


def test_what_one_slot_offers_is_few_enough_for_buildgrid() -> None:
    """BuildGrid stores every combination of a worker's properties: 2 ** 10 at most here."""
    (slot,) = share_out([Gpu(0, "nvidia-rtx-pro-6000", 120)], [1])
    assert len(slot.properties()) <= 10


@pytest.mark.parametrize("counts", [[4], [2, 2], [0, 1], [-1]])
def test_slots_that_do_not_fit_are_refused(counts: list[int]) -> None:
    with pytest.raises(ServiceError, match="do not fit the 3 of this host"):
        share_out(parse(LISTING), counts)


def test_counts_are_read() -> None:
    assert gpu_counts("1,1,2") == [1, 1, 2]
    assert gpu_counts("") == []
    with pytest.raises(ValueError, match="invalid literal"):
        gpu_counts("1,x")
