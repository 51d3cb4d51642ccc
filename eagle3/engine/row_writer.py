"""Threads that write buffers of rows to their places on disk while the target goes on."""

import os
import queue
import threading
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from eagle3.engine.ring import Ring
from eagle3.engine.rows import Report, Rows
from eagle3.engine.transfer import Wait
from eagle3.store.durable import write_at


class RowFile:
    """A file that is open as long as somebody holds this object."""

    descriptor = -1

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_WRONLY)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


@dataclass(frozen=True)
class _Filled:
    """A buffer that holds `rows` one after the other once `copied` returns."""

    buffer: torch.Tensor
    copied: Wait
    rows: tuple[Rows, ...]
    files: dict[str, RowFile]


class RowWriter:
    """Writes rows with `threads` threads and gives their buffers back to `ring`.

    After a failure nothing more is written, and buffers still come back, so that nobody waits for
    ever; `report` tells of it.
    """

    def __init__(self, ring: Ring, threads: int) -> None:
        self._ring = ring
        self._parent = os.getppid()
        self._queue: queue.Queue[_Filled] = queue.Queue()
        # Guards what follows, and tells when there is something to report.
        self._news = threading.Condition()
        self._pending = 0
        self._written: list[Rows] = []
        self._failure: str | None = None
        self._of_target = False
        for _ in range(threads):
            threading.Thread(target=self._work, name="row-writer", daemon=True).start()

    def write(
        self, buffer: torch.Tensor, copied: Wait, rows: Iterable[Rows], files: dict[str, RowFile]
    ) -> None:
        """Has the rows in `buffer` written once they are there."""
        with self._news:
            self._pending += 1
        self._queue.put(_Filled(buffer, copied, tuple(rows), files))

    def fail(self, failure: str, *, of_target: bool = False) -> None:
        """Writes nothing more; the first failure is the one that is told."""
        with self._news:
            if self._failure is None:
                self._failure, self._of_target = failure, of_target

    def report(self, *, wait: bool = False) -> Report:
        """What was written since the last report; with `wait`, once there is something to tell."""
        with self._news:
            if wait:
                self._news.wait_for(lambda: self._written or not self._pending)
            written, self._written = self._written, []
            return Report(tuple(written), self._pending > 0, self._failure, self._of_target)

    def _work(self) -> None:
        while True:
            filled = self._queue.get()
            written: tuple[Rows, ...] = ()
            try:
                filled.copied()
                if self._failure is None:
                    self._write(filled)
                    written = filled.rows
            except OSError as error:
                self.fail(f"cannot write to {filled.rows[0].path}: {error.strerror}")
            except Exception as error:
                # Of what a GPU did wrong, this is often the first that is heard; CUDA then adds
                # lines of advice.
                cause = str(error).partition("\n")[0]
                self.fail(f"cannot copy captured rows: {cause}", of_target=True)
            self._ring.give_back(filled.buffer)
            # An idle thread must not keep a file open.
            del filled
            with self._news:
                self._written.extend(written)
                self._pending -= 1
                self._news.notify_all()

    def _write(self, filled: _Filled) -> None:
        content = memoryview(filled.buffer.flatten().view(torch.uint8).numpy())
        row_bytes = len(content) // len(filled.buffer)
        offset = 0
        for rows in filled.rows:
            if os.getppid() != self._parent:
                # The run was killed, and the next one may be committing this file already.
                os._exit(1)
            size = rows.count * row_bytes
            descriptor = filled.files[rows.path].descriptor
            write_at(descriptor, content[offset : offset + size], rows.position)
            offset += size
