"""Writes samples with their states so that a kill at any moment loses nothing committed."""

import fcntl
import hashlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import torch
from safetensors.torch import save

from eagle3.errors import StoreError
from eagle3.store.durable import PARTIAL, sync_folder, write_file
from eagle3.store.index import INDEX, IndexEntry
from eagle3.store.layout import HIDDEN_STATES, INPUT_IDS, LOSS_MASK, SAMPLES, sample_path
from eagle3.store.manifest import MANIFEST, Manifest
from eagle3.store.plan import plan_store
from eagle3.store.sample import Sample


class StoreWriter:
    """`with StoreWriter(folder, manifest) as store: store.write(...); store.commit()`.

    Entering makes the folder or goes on in it (see plan_store). One process writes at a time.
    Every method raises StoreError.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder = folder
        self._manifest = manifest
        self._written: list[IndexEntry] = []
        self._descriptors: list[int] = []

    def __enter__(self) -> "StoreWriter":
        try:
            with self._explained():
                self._open()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())

    def write(self, sample: Sample, hidden_states_TLH: torch.Tensor) -> None:
        """Writes the file of `sample`. It does not count before `commit`."""
        manifest = self._manifest
        shape = (len(sample.input_ids), len(manifest.capture_points), manifest.hidden_size)
        if tuple(hidden_states_TLH.shape) != shape or hidden_states_TLH.dtype != torch.bfloat16:
            raise StoreError(
                f"sample {sample.id}: the states are {list(hidden_states_TLH.shape)} "
                f"{hidden_states_TLH.dtype}, planned are {list(shape)} torch.bfloat16"
            )
        content = save(
            {
                INPUT_IDS: torch.tensor(sample.input_ids, dtype=torch.int64),
                LOSS_MASK: torch.tensor(sample.loss_mask, dtype=torch.int64),
                HIDDEN_STATES: hidden_states_TLH.contiguous(),
            }
        )
        with self._explained():
            write_file(sample_path(self._folder, sample.id), content)
        checksum = hashlib.sha256(content).hexdigest()
        self._written.append(IndexEntry(sample.id, shape[0], len(content), checksum))

    def commit(self) -> None:
        """Makes everything written so far count, and last."""
        with self._explained():
            # The names must be on disk before the index speaks of them.
            sync_folder(self._folder / SAMPLES)
            lines = b"".join(entry.to_line() for entry in self._written)
            if os.write(self._index, lines) != len(lines):
                raise OSError(0, "the index was written in part (disk full?)")
            os.fsync(self._index)
        self._written.clear()

    def _open(self) -> None:
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock()
        committed = plan_store(folder, self._manifest).values()
        if not (folder / MANIFEST).exists():
            write_file(folder / MANIFEST, self._manifest.to_json().encode())
        (folder / SAMPLES).mkdir(exist_ok=True)
        for leftover in (folder / SAMPLES).glob(f"*{PARTIAL}"):
            leftover.unlink()
        # Drops what a kill left of a line, which would swallow the next one, and the entries of
        # files that were removed, whose checksums their successors would not meet.
        write_file(folder / INDEX, b"".join(entry.to_line() for entry in committed))
        self._index = os.open(folder / INDEX, os.O_WRONLY | os.O_APPEND)
        self._descriptors.append(self._index)
        sync_folder(folder)
        sync_folder(folder.parent)

    def _lock(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        self._descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(
                f"another run is writing to {self._folder}; wait for it, or give another --out"
            ) from error
        except OSError:
            # Some network file systems have no locks; commits do not rest on them.
            return

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"cannot write to {self._folder}: {error.strerror}; what was committed is safe"
            ) from error
