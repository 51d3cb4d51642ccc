"""The folder that a preparation writes and an extraction reads.

`dataset.json` is what makes a folder a dataset; it is the last file written, and the folder gets
its name only when all of it is on disk.
"""

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from eagle3.chat.token_sequence import TokenSequence
from eagle3.errors import InputError, StoreError
from eagle3.preparation.samples import SCHEMA
from eagle3.preparation.seen import SeenIds
from eagle3.preparation.sources import DESCRIPTION
from eagle3.preparation.target import tokenizer_digest
from eagle3.preparation.tokenizing import Outcome
from eagle3.store.durable import locked, sync_folder

SCHEMA_VERSION = 1
REJECTS = "rejects.jsonl"
VOCABULARY = "vocabulary.parquet"
VALIDATION = "validation"
PARTS = ("train", VALIDATION)
_TOKENS_PER_ROW_GROUP = 2_000_000
_TOKENS_PER_FILE = 200_000_000


class DatasetWriter:
    """Writes samples part by part into a folder beside `out`, which takes its name at `commit`.

    A context: left without `commit`, nothing stays. Raises StoreError where `out` is taken, another
    run writes to it, or the disk refuses.
    """

    def __init__(self, out: Path) -> None:
        if out.exists() and not (out.is_dir() and not any(out.iterdir())):
            raise StoreError(f"{out} is there already; give another --out, or remove it")
        self._out = out
        self._committed = False
        self.folder = out.with_name(f".{out.name}.partial")
        with ExitStack() as opened, self.explained():
            self._take_folder(opened)
            opened.callback(self._remove_unless_committed)
            self._seen = SeenIds(self.folder / "seen.sqlite")
            self._rejects = (self.folder / REJECTS).open("w", encoding="utf-8")
            opened.callback(self._close_rejects)
            self._open = opened.pop_all()
        self._parts = {part: _PartWriter(self.folder, part) for part in PARTS}

    def _take_folder(self, opened: ExitStack) -> None:
        """Makes and locks the folder; what a killed run left in it was never more than scratch."""
        self.folder.mkdir(parents=True, exist_ok=True)
        made = self.folder.stat()
        opened.enter_context(locked(self.folder, self._out))
        # Before it was locked another run may have given the folder its name.
        if not os.path.samestat(made, self.folder.stat()):
            raise StoreError(f"another run has just written to {self._out}; look at it")
        for path in self.folder.iterdir():
            path.unlink()

    def __enter__(self) -> "DatasetWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _close_rejects(self) -> None:
        # They are closed already, or what they still hold goes with them: of a full disk, too.
        with suppress(OSError):
            self._rejects.close()

    def _remove_unless_committed(self) -> None:
        if not self._committed:
            shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """A context of writing into `folder`, with a StoreError where the disk refuses."""
        try:
            yield
        except OSError as error:
            # Arrow's errors have no `strerror`.
            reason = error.strerror or error
            raise StoreError(f"cannot write {self.folder}: {reason}") from error
        except sqlite3.Error as error:
            raise StoreError(f"cannot write {self.folder}: {error}") from error

    def add_ids(self, ids: Sequence[str]) -> list[bool]:
        """Whether each of `ids` is new, the earlier ones of the same call counted as seen."""
        with self.explained():
            return self._seen.add(ids)

    def write(self, part: str, table: pa.Table) -> None:
        with self.explained():
            self._parts[part].write(table)

    def reject(self, outcome: Outcome) -> None:
        """Notes a row that gave no sample: where it stands, why, and the row itself."""
        line = {
            "place": outcome.place,
            "outcome": outcome.kind,
            "reason": outcome.reason,
            "row": outcome.content,
        }
        with self.explained():
            self._rejects.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")

    def finish(self) -> tuple[str, dict[str, str]]:
        """Closes the files; returns the digest of all ids and the SHA-256 of each file of samples.

        The digest is over the sorted ids of the samples, as the store has it.
        """
        with self.explained():
            digest = self._seen.digest()
            self._seen.close()
            self._rejects.close()
            for part in self._parts.values():
                part.close()
        return digest, {
            path.name: _file_digest(path)
            for part in PARTS
            for path in sorted(self.folder.glob(f"{part}-*.parquet"))
        }

    def commit(self, description: dict[str, Any]) -> None:
        """Writes `description` and gives the folder its name."""
        text = json.dumps({"schema_version": SCHEMA_VERSION, **description}, indent=2)
        try:
            (self.folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")
            for path in self.folder.iterdir():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            sync_folder(self.folder)
            self.folder.rename(self._out)
            sync_folder(self._out.parent)
        except OSError as error:
            raise StoreError(f"cannot commit {self._out}: {error.strerror}") from error
        self._committed = True


class _PartWriter:
    """Files of one part, cut by tokens so that neither memory nor a file grows without end."""

    def __init__(self, folder: Path, part: str) -> None:
        self._folder = folder
        self._part = part
        self._files = 0
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._waiting_tokens = 0
        self._file_tokens = 0

    def write(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        self._waiting.append(table)
        self._waiting_tokens += sum(len(chunk.values) for chunk in table["input_ids"].chunks)
        if self._waiting_tokens >= _TOKENS_PER_ROW_GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._end_file()

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            path = self._folder / f"{self._part}-{self._files:05}.parquet"
            self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")
            self._files += 1
        self._writer.write_table(pa.concat_tables(self._waiting))
        self._file_tokens += self._waiting_tokens
        self._waiting, self._waiting_tokens = [], 0
        if self._file_tokens >= _TOKENS_PER_FILE:
            self._end_file()

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer, self._file_tokens = None, 0


def read_description(folder: Path) -> dict[str, Any]:
    """What dataset.json says; raises InputError where `folder` is no dataset of this version."""
    path = folder / DESCRIPTION
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        version = description["schema_version"]
    except OSError as error:
        raise InputError(
            f"{folder} is not a prepared dataset ({DESCRIPTION}: {error.strerror}); make one with "
            "//eagle3:prepare"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged; prepare the data again") from error
    if version != SCHEMA_VERSION:
        raise InputError(f"{path} has schema_version {version}, which is not known here")
    return description


def read_description_for(model: Path, folder: Path) -> dict[str, Any]:
    """`read_description`; raises InputError, too, where `model` makes other token ids."""
    description = read_description(folder)
    made_for = description["target"]
    if made_for["tokenizer_sha256"] != tokenizer_digest(model):
        raise InputError(
            f"{folder} was prepared for {made_for['name']}, whose tokenizer or template differs "
            f"from that of {model.name}; prepare it again with this --model"
        )
    return description


def read_dataset(folder: Path, limit: int | None = None) -> Iterator[TokenSequence]:
    """Yields the samples of both parts, the training part first, at most `limit` of them.

    Those of the validation part are held out.
    Raises InputError for a file that is missing or is not the one that was written.
    """
    left = limit
    for name, expected in read_description(folder)["files"].items():
        path = folder / name
        held_out = name.startswith(f"{VALIDATION}-")
        try:
            check_file(path, expected)
            with pq.ParquetFile(path) as file:
                row = 0
                for batch in file.iter_batches(batch_size=256):
                    for sample in batch.to_pylist():
                        if left == 0:
                            return
                        left = None if left is None else left - 1
                        row += 1
                        yield TokenSequence(
                            f"{name}:{row}",
                            tuple(sample["input_ids"]),
                            tuple(sample["loss_mask"]),
                            held_out,
                        )
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"cannot read {path}: {error}; prepare the data again") from error


def check_file(path: Path, expected: str) -> None:
    """Raises InputError where the SHA-256 of `path` is not the `expected` one, or OSError."""
    if _file_digest(path) != expected:
        raise InputError(f"{path} is damaged (SHA-256); prepare the data again")


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
