"""How often the target says each token, and what a draft that knows fewer tokens would miss."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eagle3.errors import StoreError

_DATASET_KEY = b"dataset_sha256"


@dataclass(frozen=True)
class TokenFrequencies:
    """`counts[id]` is how often token `id` is supervised in the training part of a dataset."""

    dataset_sha256: str
    counts: np.ndarray

    def draft_vocabulary(self, size: int) -> np.ndarray:
        """The ids of the `size` most frequent tokens, ascending; of equals the lower ids."""
        order = np.lexsort((np.arange(len(self.counts)), -self.counts))
        return np.sort(order[:size])

    def coverage(self, size: int) -> float:
        """The share of supervised tokens that a draft vocabulary of `size` holds."""
        total = int(self.counts.sum())
        return int(np.sort(self.counts)[::-1][:size].sum()) / total if total else 0.0


def write_frequencies(path: Path, frequencies: TokenFrequencies) -> None:
    """Writes the tokens that occur, with the hash of the dataset they were counted in."""
    ids = np.flatnonzero(frequencies.counts)
    table = pa.table(
        {"token": pa.array(ids, pa.int32()), "count": pa.array(frequencies.counts[ids], pa.int64())}
    )
    metadata = {
        _DATASET_KEY: frequencies.dataset_sha256.encode(),
        b"vocab_size": str(len(frequencies.counts)).encode(),
    }
    pq.write_table(table.replace_schema_metadata(metadata), path)


def read_frequencies(path: Path, dataset_sha256: str) -> TokenFrequencies:
    """Reads what `write_frequencies` wrote.

    Raises StoreError where it was counted in another dataset than `dataset_sha256`: a map from a
    stale count gives a draft that proposes the wrong words.
    """
    table = pq.read_table(path)
    metadata = table.schema.metadata or {}
    counted_in = metadata.get(_DATASET_KEY, b"").decode()
    if counted_in != dataset_sha256:
        raise StoreError(f"{path} was counted in another dataset; prepare the data again")
    counts = np.zeros(int(metadata[b"vocab_size"]), np.int64)
    counts[table["token"].to_numpy()] = table["count"].to_numpy()
    return TokenFrequencies(counted_in, counts)
