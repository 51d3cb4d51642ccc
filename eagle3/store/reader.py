"""Reads a store, and believes nothing that it has not checked."""

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from eagle3.errors import StoreError
from eagle3.store.index import read_index
from eagle3.store.layout import HIDDEN_STATES, INPUT_IDS, LOSS_MASK, sample_path
from eagle3.store.manifest import read_manifest
from eagle3.store.sample import Sample


class StoreReader:
    """The committed samples of the store in `folder`. Every method raises StoreError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.manifest = read_manifest(folder)
        self._entries = read_index(folder)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the committed samples, in the order in which they were committed."""
        return tuple(self._entries)

    @property
    def size(self) -> int:
        """Bytes of the committed samples' files."""
        return sum(entry.size for entry in self._entries.values())

    @property
    def is_complete(self) -> bool:
        """Whether every sample of the dataset is committed."""
        return len(self._entries) == self.manifest.dataset.samples

    def read(self, sample_id: str) -> tuple[Sample, torch.Tensor]:
        """A sample and its hidden states, bf16 [T, L, H], L as in the manifest's capture points.

        The checksum of the file, the id of the content and the shape are checked.
        """
        entry = self._entries.get(sample_id)
        if entry is None:
            raise StoreError(f"{self._folder} holds no sample {sample_id}")
        path = sample_path(self._folder, sample_id)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise StoreError(
                f"{path} is damaged: its checksum is not the committed one; "
                "remove it and extract again"
            )
        try:
            tensors = load(content)
            sample = Sample(tuple(tensors[INPUT_IDS].tolist()), tuple(tensors[LOSS_MASK].tolist()))
            hidden_states_TLH = tensors[HIDDEN_STATES]
        except (SafetensorError, KeyError, ValueError) as error:
            raise StoreError(f"{path} is not a sample's file ({error})") from error
        shape = (entry.tokens, len(self.manifest.capture_points), self.manifest.hidden_size)
        if sample.id != sample_id or tuple(hidden_states_TLH.shape) != shape:
            raise StoreError(f"{path} holds another sample than its name says")
        return sample, hidden_states_TLH
