"""The ids of all samples so far, on disk: in memory they would grow with the data."""

import hashlib
import sqlite3
from collections.abc import Sequence
from itertools import batched
from pathlib import Path

_CACHE_KIB = 64 * 1024
_IDS_A_STATEMENT = 1024


class SeenIds:
    """Tells new ids from repeated ones; `path` is a scratch file, removed at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = sqlite3.connect(path, isolation_level=None)
        # Nothing here outlives the run, so nothing is synced or journalled.
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._database.execute("CREATE TABLE seen (id BLOB PRIMARY KEY) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def add(self, ids: Sequence[str]) -> list[bool]:
        """Whether each of `ids` is new, the earlier ones of the same call counted as seen."""
        new: list[bool] = []
        for batch in batched(map(bytes.fromhex, ids), _IDS_A_STATEMENT, strict=False):
            values = ", ".join(["(?)"] * len(batch))
            inserted = {
                sample_id
                for (sample_id,) in self._database.execute(
                    f"INSERT OR IGNORE INTO seen VALUES {values} RETURNING id", batch
                )
            }
            if len(inserted) == len(batch):
                new += [True] * len(batch)
                continue
            for sample_id in batch:
                new.append(sample_id in inserted)
                inserted.discard(sample_id)
        return new

    def digest(self) -> str:
        """SHA-256 over all ids in sorted order, as `eagle3.store.sample.dataset_digest` has it."""
        digest = hashlib.sha256()
        rows = self._database.execute("SELECT id FROM seen ORDER BY id")
        for number, batch in enumerate(batched(rows, _IDS_A_STATEMENT, strict=False)):
            text = "\n".join([sample_id.hex() for (sample_id,) in batch])
            digest.update(("\n" if number else "").encode() + text.encode())
        return digest.hexdigest()

    def close(self) -> None:
        self._database.close()
        self._path.unlink()
