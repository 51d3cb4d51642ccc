"""Rows reach their places; a failure is told, and stops nobody who waits for a buffer."""

import errno
import os
import threading
from pathlib import Path

import pytest
import torch

import eagle3.engine.row_writer
from eagle3.engine.ring import Ring
from eagle3.engine.row_writer import RowFile, RowWriter
from eagle3.engine.rows import Report, Rows

ROW_BYTES = 8


def everything(writer: RowWriter) -> Report:
    """Waits until nothing is left to be written."""
    written: list[Rows] = []
    while (report := writer.report(wait=True)).more:
        written += report.written
    return Report((*written, *report.written), False, report.failure, report.of_target)


@pytest.fixture
def ring() -> Ring:
    return Ring((2, 2), 4, 64, lambda shape: torch.empty(shape, dtype=torch.bfloat16))


def fill(ring: Ring, value: float) -> torch.Tensor:
    buffer = ring.take()
    buffer.fill_(value)
    return buffer


def test_rows_go_to_their_places(ring: Ring, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("x", "y")]
    for path in paths:
        Path(path).write_bytes(bytes(100))
    writer = RowWriter(ring, threads=2)
    files = {path: RowFile(path) for path in paths}
    rows = [Rows("a", 3, 1, paths[0], 10), Rows("b", 0, 2, paths[1], 40)]
    writer.write(fill(ring, 1.0), lambda: None, rows, files)
    assert everything(writer).written == tuple(rows)
    assert writer.report() == Report()
    row = torch.ones(ROW_BYTES // 2, dtype=torch.bfloat16).view(torch.uint8).numpy().tobytes()
    assert Path(paths[0]).read_bytes() == bytes(10) + row + bytes(82)
    assert Path(paths[1]).read_bytes() == bytes(40) + 2 * row + bytes(44)


def test_nothing_is_written_before_the_copy_is_there(ring: Ring, tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    Path(path).touch()
    writer = RowWriter(ring, threads=1)
    copied = threading.Event()

    def wait() -> None:
        copied.wait()

    rows = Rows("a", 0, 1, path, 0)
    writer.write(fill(ring, 1.0), wait, [rows], {path: RowFile(path)})
    assert Path(path).stat().st_size == 0
    copied.set()
    everything(writer)
    assert Path(path).stat().st_size == ROW_BYTES


def test_a_full_disk_is_told_and_buffers_come_back(
    ring: Ring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "x")
    Path(path).touch()

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(eagle3.engine.row_writer, "write_at", fail)
    writer = RowWriter(ring, threads=2)
    for _ in range(20):
        writer.write(
            fill(ring, 1.0), lambda: None, [Rows("a", 0, 1, path, 0)], {path: RowFile(path)}
        )
    report = everything(writer)
    assert report.written == ()
    assert report.failure == f"cannot write to {path}: No space left on device"
    assert not report.of_target


def test_a_copy_that_fails_is_told(ring: Ring, tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("an illegal memory access\nCompile with TORCH_USE_CUDA_DSA")

    writer = RowWriter(ring, threads=1)
    writer.write(fill(ring, 1.0), fail, [Rows("a", 0, 1, "x", 0)], {})
    report = everything(writer)
    assert report.failure == "cannot copy captured rows: an illegal memory access"
    assert report.of_target


def test_files_close_when_nobody_holds_them(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    file = RowFile(str(path))
    descriptor = file.descriptor
    os.fstat(descriptor)
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_an_orphan_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    started, go = os.pipe(), os.pipe()
    parent = os.fork()
    if parent == 0:
        if os.fork():
            os.read(started[0], 1)
            os._exit(0)
        ring = Ring((2, 2), 4, 64, lambda shape: torch.empty(shape, dtype=torch.bfloat16))
        writer = RowWriter(ring, threads=1)
        os.write(started[1], b"1")

        def wait() -> None:
            os.read(go[0], 1)

        writer.write(
            ring.take(), wait, [Rows("a", 0, 1, str(path), 0)], {str(path): RowFile(str(path))}
        )
        everything(writer)
        os._exit(0)
    os.close(started[1])
    os.waitpid(parent, 0)
    os.write(go[1], b"1")
    # The orphan holds the other end of the pipe until it has ended.
    os.close(go[0])
    assert os.read(started[0], 1) == b""
    assert path.stat().st_size == 0
