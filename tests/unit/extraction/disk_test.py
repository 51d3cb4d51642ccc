"""The disk is planned with the numbers, and what would fit is told before anything starts."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from eagle3.errors import StoreError
from eagle3.extraction.disk import DiskPlan, plan_disk
from eagle3.store.manifest import DatasetIdentity, Manifest, StackIdentity, TargetIdentity
from eagle3.store.sample import Sample

MANIFEST = Manifest(
    target=TargetIdentity("m", "0", "0"),
    tokenizer_sha256="0",
    dataset=DatasetIdentity(10, 1000, "0"),
    stack=StackIdentity("cpu", "0", {}, {}),
    capture_points=(1, 2, 3, 4),
    hidden_size=1000,
)
SAMPLES = [Sample((number,) * 100, (1,) * 100) for number in range(10)]
# Of 1,000 rows: 4 x 1,000 values of 2 bytes, an id of 8 bytes, a mask of one.
TENSORS = 1000 * (4 * 1000 * 2 + 9)


def plan(
    monkeypatch: pytest.MonkeyPatch, folder: Path, free: int, *, begun: bool = False
) -> DiskPlan:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    return plan_disk(SAMPLES, MANIFEST, folder / "out", 2**30, begun=begun)


def refusal(monkeypatch: pytest.MonkeyPatch, folder: Path, free: int, *, begun: bool) -> str:
    with pytest.raises(StoreError) as raised:
        plan(monkeypatch, folder, free, begun=begun)
    return str(raised.value)


def test_what_fits_is_not_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    disk = plan(monkeypatch, tmp_path, 10**9)
    assert TENSORS < disk.needed < TENSORS + 30_000
    assert (disk.free, disk.seconds) == (10**9, None)


def test_a_refusal_tells_what_would_fit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    message = refusal(monkeypatch, tmp_path, TENSORS // 2 + 50_000, begun=False)
    assert "8.0 MB are needed" in message
    assert "4.1 MB are free" in message
    assert "--fp8-states (4.0 MB, rows are off by 2 %)" in message
    assert "2 of the 4 --layers (4.0 MB)" in message
    assert "--limit 4 of the 10 samples" in message
    assert "--shard 0/2 here" in message


def test_what_a_begun_run_has_settled_is_no_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    message = refusal(monkeypatch, tmp_path, TENSORS // 2, begun=True)
    assert "--fp8-states" not in message
    assert "--layers" not in message
    assert "--limit" not in message
    assert "--shard 0/3 here" in message


def test_a_full_disk_needs_space(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert refusal(monkeypatch, tmp_path, 0, begun=False).endswith("or free some space")


def test_the_time_follows_from_the_shards_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    # Shards of 1 MB, 2 s apart, and a day between the third and the fourth.
    for number, seconds in enumerate((0, 2, 4, 86404, 86406)):
        shard = out / f"shard-{number:05d}.safetensors"
        shard.write_bytes(bytes(10**6))
        os.utime(shard, (seconds, seconds))
    disk = plan(monkeypatch, tmp_path, 10**9)
    assert disk.bytes_per_s == 500_000
    assert disk.seconds == pytest.approx(disk.needed / 500_000)
