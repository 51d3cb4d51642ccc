"""Rows of data files in chunks, whatever the files are packed in; memory stays flat."""

import gzip
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import batched
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from eagle3.chat.jsonl import Record, parse_line
from eagle3.errors import InputError

# What makes a folder a prepared dataset.
DESCRIPTION = "dataset.json"
_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
_ROWS_PER_CHUNK = 128
# What the packers' libraries raise for a file that is damaged or cut off.
_DAMAGE = (OSError, EOFError, gzip.BadGzipFile, pa.ArrowException, ValueError)

# As it stands in its file: a line of JSON, or the columns of a table's row.
RawRow = bytes | dict[str, Any]


@dataclass(frozen=True)
class Chunk:
    """Some rows of one file: JSON lines with their numbers, or a table in Arrow's stream format.

    `file` is its path from the folder that holds all of them. `row_count` is how many rows, and
    `bytes_read` counts what was read of all data so far, packed as it is.
    """

    file: str
    row_count: int
    first_row: int
    lines: tuple[tuple[int, bytes], ...]
    table: bytes | None
    bytes_read: int

    def rows(self) -> Iterator[tuple[str, RawRow]]:
        """Place and content of each row."""
        for number, line in self.lines:
            yield f"{self.file}:{number}", line
        if self.table is not None:
            table = pa.ipc.open_stream(self.table).read_all()
            for number, row in enumerate(table.to_pylist(), start=self.first_row):
                yield f"{self.file}:{number}", row


def parse_raw(place: str, row: RawRow) -> Record:
    """The record of a row of `Chunk.rows`; raises InputError where its line is malformed."""
    return parse_line(row, place) if isinstance(row, bytes) else Record(place, row)


def as_content(row: RawRow) -> str | dict[str, Any]:
    """What is kept of a row that is not taken."""
    return row.decode("utf-8", "replace").rstrip("\r\n") if isinstance(row, bytes) else row


def find_files(data: Path) -> list[Path]:
    """`data` itself, or the data files in it and below, sorted.

    Raises InputError where there are none, and for a folder that was prepared already.
    """
    if data.is_file():
        return [data]
    if not data.is_dir():
        raise InputError(f"cannot read the data {data}: no such file or folder")
    if (data / DESCRIPTION).is_file():
        raise InputError(f"{data} is a prepared dataset already; give it to //eagle3:extract")
    found = sorted(
        path for path in data.rglob("*") if path.name.endswith(_SUFFIXES) and path.is_file()
    )
    if not found:
        raise InputError(f"no data in {data}; it needs files named *{', *'.join(_SUFFIXES)}")
    return found


def read_chunks(files: list[Path], limit: int | None = None) -> Iterator[Chunk]:
    """Yields all rows of `files` in order, at most `limit` of them; blank lines are no rows.

    Raises InputError, with the file and the last good row, for what cannot be read.
    """
    left = limit
    earlier = 0
    # Files of one name in several folders are told apart.
    root = os.path.commonpath([path.parent for path in files])
    for path in files:
        name = str(path.relative_to(root))
        rows = 0
        read = _read_parquet if path.name.endswith(".parquet") else _read_lines
        try:
            for chunk in read(path, name, earlier, left):
                rows += chunk.row_count
                left = None if left is None else left - chunk.row_count
                yield chunk
        except _DAMAGE as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"cannot read {path} after row {rows:,}: {reason}; replace the file"
            ) from error
        earlier += path.stat().st_size
        if left == 0:
            return


def _read_lines(path: Path, name: str, earlier: int, limit: int | None) -> Iterator[Chunk]:
    with path.open("rb") as packed:
        # Kept by name: a reader that is let go closes the file below it.
        unpacked = _unpacked(path, packed)
        lines = ((number, line) for number, line in enumerate(unpacked, start=1) if line.strip())
        if limit is not None:
            lines = (pair for _, pair in zip(range(limit), lines, strict=False))
        for batch in batched(lines, _ROWS_PER_CHUNK, strict=False):
            yield Chunk(name, len(batch), batch[0][0], batch, None, earlier + packed.tell())


def _unpacked(path: Path, packed: BinaryIO) -> BinaryIO:
    if path.name.endswith(".gz"):
        return cast(BinaryIO, gzip.GzipFile(fileobj=packed))
    if path.name.endswith(".zst"):
        stream = pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd")
        return cast(BinaryIO, io.BufferedReader(cast(Any, stream), 1 << 20))
    return packed


def _read_parquet(path: Path, name: str, earlier: int, limit: int | None) -> Iterator[Chunk]:
    with pq.ParquetFile(path) as file:
        total = file.metadata.num_rows if limit is None else min(limit, file.metadata.num_rows)
        size = path.stat().st_size
        row = 0
        for batch in file.iter_batches(batch_size=_ROWS_PER_CHUNK):
            batch = batch.slice(0, total - row)
            if not batch.num_rows:
                return
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            row += batch.num_rows
            done = earlier + size * row // max(1, file.metadata.num_rows)
            table = sink.getvalue().to_pybytes()
            first = row - batch.num_rows + 1
            yield Chunk(name, batch.num_rows, first, (), table, done)
