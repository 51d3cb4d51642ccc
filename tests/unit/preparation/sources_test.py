"""The same rows come out of every packing, and damage is told with its file."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eagle3.errors import InputError
from eagle3.preparation.sources import find_files, parse_raw, read_chunks

ROWS = [{"messages": [{"role": "user", "content": f"Grüße {number}"}]} for number in range(300)]
TEXT = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def write(folder: Path, name: str) -> Path:
    path = folder / name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif name.endswith(".gz"):
        path.write_bytes(gzip.compress(TEXT))
    elif name.endswith(".zst"):
        path.write_bytes(pa.Codec("zstd").compress(TEXT, asbytes=True))
    else:
        path.write_bytes(TEXT)
    return path


def rows(*files: Path, limit: int | None = None) -> list[tuple[str, dict[str, Any]]]:
    records = (parse_raw(*row) for chunk in read_chunks(list(files), limit) for row in chunk.rows())
    return [(record.place, record.fields) for record in records]


@pytest.mark.parametrize("name", ["d.jsonl", "d.jsonl.gz", "d.jsonl.zst", "d.parquet", "d.txt"])
def test_every_packing_holds_the_same_rows(tmp_path: Path, name: str) -> None:
    found = rows(write(tmp_path, name))
    assert [fields for _, fields in found] == ROWS
    assert [place for place, _ in found] == [f"{name}:{number}" for number in range(1, 301)]


def test_packed_twice_is_read_to_the_end(tmp_path: Path) -> None:
    for name, once in (
        ("d.jsonl.gz", gzip.compress(TEXT)),
        ("d.jsonl.zst", pa.Codec("zstd").compress(TEXT, asbytes=True)),
    ):
        (tmp_path / name).write_bytes(once + once)
        assert len(rows(tmp_path / name)) == 600


@pytest.mark.parametrize("limit", [1, 128, 200, 300, 350])
def test_limit_counts_rows_over_all_files(tmp_path: Path, limit: int) -> None:
    files = [write(tmp_path, "a.parquet"), write(tmp_path, "b.jsonl")]
    assert len(rows(*files, limit=limit)) == limit


def test_chunks_count_their_rows_and_the_bytes_before_them(tmp_path: Path) -> None:
    files = [write(tmp_path, "a.jsonl.gz"), write(tmp_path, "b.parquet")]
    chunks = list(read_chunks(files))
    assert [chunk.row_count for chunk in chunks] == [128, 128, 44] * 2
    read = [chunk.bytes_read for chunk in chunks]
    assert read == sorted(read)
    assert read[-1] == sum(file.stat().st_size for file in files)


def test_blank_lines_are_no_rows_and_keep_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('\n{"a": 1}\n \n{"b": 2}\n')
    assert rows(tmp_path / "d.jsonl") == [("d.jsonl:2", {"a": 1}), ("d.jsonl:4", {"b": 2})]


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for folder in ("chat", "code/deep"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "part.jsonl").write_text("{}\n")
        pq.write_table(pa.table({"a": [1]}), tmp_path / folder / "part.parquet")
    files = find_files(tmp_path)
    places = [place for chunk in read_chunks(files) for place, _ in chunk.rows()]
    assert places == [
        *("chat/part.jsonl:1", "chat/part.parquet:1"),
        *("code/deep/part.jsonl:1", "code/deep/part.parquet:1"),
    ]
    assert [place for chunk in read_chunks(files[:1]) for place, _ in chunk.rows()] == [
        "part.jsonl:1"
    ]


def test_a_folder_is_its_data_files_in_order(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    wanted = [write(tmp_path, "b.jsonl"), write(tmp_path / "sub", "a.parquet")]
    write(tmp_path, "README.txt")
    assert find_files(tmp_path) == wanted


def test_nothing_to_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs files named"):
        find_files(tmp_path)
    with pytest.raises(InputError, match="no such file or folder"):
        find_files(tmp_path / "none")


@pytest.mark.parametrize("name", ["d.jsonl.gz", "d.jsonl.zst", "d.parquet"])
@pytest.mark.parametrize("damage", ["cut", "foreign"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, damage: str) -> None:
    path = write(tmp_path, name)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"not packed " * 9)
    with pytest.raises(InputError, match=rf"^cannot read .*{name} after row \d+: [^\n]*$"):
        rows(path)
