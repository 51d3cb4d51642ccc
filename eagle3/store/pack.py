"""A store as it travels: smaller, not to be read in place, and unpacked to the same bytes.

Sign and exponent of neighbouring rows are alike, the rest of the mantissa is noise. So the upper
bytes of the states, point by point, are packed with Huffman codes (deflate without a search for
repetitions, which finds none), and everything else stays as it is.
"""

import filecmp
import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import batched
from pathlib import Path
from typing import Any, BinaryIO

import torch
import xxhash

from eagle3.errors import StoreError
from eagle3.store.durable import partial_path, sync_folder
from eagle3.store.index import INDEX
from eagle3.store.manifest import MANIFEST
from eagle3.store.quarantine import QUARANTINE
from eagle3.store.reader import StoreReader
from eagle3.store.row_format import BFLOAT16
from eagle3.store.shard import Shard
from eagle3.store.used import USED

_SUFFIX = ".packed"
_FORMAT = 1
_CHUNK_BYTES = 8 * 1024 * 1024
_SIZE = struct.Struct("<Q")
_THREADS = os.cpu_count() or 1

OnBytes = Callable[[int, int], None]


def pack_store(store: Path, folder: Path, on_bytes: OnBytes) -> None:
    """Writes the store to `folder`, packed. `on_bytes` is told bytes packed, of how many.

    Call it again after a kill. Raises StoreError, among others for a store of parts or of 8-bit
    floats, which would hardly get smaller, and where `folder` has the beginning of another store.
    """
    reader = StoreReader(store)
    if reader.parts:
        raise StoreError(f"{store} is in parts; join them with --merge first")
    if reader.manifest.dtype != BFLOAT16:
        raise StoreError(f"the states in {store} are {reader.manifest.dtype}; copy it as it is")
    files = {name: name + _SUFFIX for name in reader.shards}
    _convert(store, folder, files, _pack, on_bytes)


def unpack_store(packed: Path, folder: Path, on_bytes: OnBytes) -> None:
    """Makes a store in `folder` of one that was packed; every byte is checked. See pack_store."""
    files = {name + _SUFFIX: name for name in StoreReader(packed).shards}
    _convert(packed, folder, files, _unpack, on_bytes)


def _convert(
    source: Path,
    folder: Path,
    files: dict[str, str],
    convert: Callable[[Path, BinaryIO], None],
    on_bytes: OnBytes,
) -> None:
    missing = [name for name in files if not (source / name).exists()]
    if missing:
        raise StoreError(
            f"{source} lacks {missing[0]} ({len(missing):,} of {len(files):,} shards are not "
            "there); copy it once more, and see that --pack is given a store and --unpack a packed "
            "one"
        )
    if (folder / MANIFEST).exists():
        raise StoreError(f"{folder} holds states already; give another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _begin(source, folder)
        done, total = 0, sum((source / name).stat().st_size for name in files)
        for name, target in files.items():
            if not (folder / target).exists():
                _write(folder / target, lambda file, path=source / name: convert(path, file))
            done += (source / name).stat().st_size
            on_bytes(done, total)
        # The manifest last: without it the folder is no store.
        for name in (QUARANTINE, USED, MANIFEST):
            if (source / name).exists():
                _write(folder / name, lambda file, path=source / name: _copy(path, file))
        sync_folder(folder)
    except OSError as error:
        raise StoreError(f"cannot write {folder}: {error.strerror}") from error


def _begin(source: Path, folder: Path) -> None:
    """Puts the index there first: by its checksums a later call knows whose shards lie there."""
    ours, theirs = source / INDEX, folder / INDEX
    if theirs.exists() or any(folder.glob("shard-*")):
        is_ours = theirs.exists() and ours.exists() and filecmp.cmp(ours, theirs, shallow=False)
        if not is_ours:
            raise StoreError(f"{folder} has shards of another store; give another folder")
    elif ours.exists():
        _write(theirs, lambda file: _copy(ours, file))


def _write(path: Path, write: Callable[[BinaryIO], None]) -> None:
    partial = partial_path(path)
    with partial.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)


def _copy(path: Path, file: BinaryIO) -> None:
    with path.open("rb") as source:
        shutil.copyfileobj(source, file)


def _pack(path: Path, file: BinaryIO) -> None:
    """A line of JSON, the header, the chunks (size of the upper bytes, they, the lower bytes), the
    tables."""
    shard = Shard(path)
    layout, content = shard.layout, shard.content
    points, rows = len(layout.capture_points), layout.tokens
    about = {
        "format": _FORMAT,
        "head": layout.header_bytes,
        "shape": [rows, points, layout.hidden_size],
        "chunk": max(1, _CHUNK_BYTES // layout.row_bytes),
        "size": layout.size,
        "xxh3": xxhash.xxh3_64_hexdigest(content),
    }
    file.write(json.dumps(about).encode() + b"\n")
    file.write(content[: layout.header_bytes])
    states = torch.frombuffer(shard.rows(0, rows), dtype=torch.uint8)
    states_TLHB = states.view(rows, points, layout.hidden_size, 2)
    starts = range(0, rows, about["chunk"])
    with ThreadPoolExecutor(_THREADS) as threads:
        # A few at a time, so that a large shard does not lie in memory.
        for some in batched(starts, 2 * _THREADS, strict=False):
            chunks = (states_TLHB[start : start + about["chunk"]] for start in some)
            for upper, lower in threads.map(_pack_chunk, chunks):
                file.write(_SIZE.pack(len(upper)) + upper)
                file.write(lower)
    file.write(content[layout.input_ids_start :])


def _pack_chunk(states_NLHB: torch.Tensor) -> tuple[bytes, bytes]:
    lower_NLH, upper_NLH = states_NLHB.unbind(-1)
    packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS, 9, zlib.Z_HUFFMAN_ONLY)
    packed = packer.compress(_bytes_of(upper_NLH.transpose(0, 1))) + packer.flush()
    return packed, _bytes_of(lower_NLH)


def _bytes_of(values: torch.Tensor) -> bytes:
    return values.contiguous().numpy().tobytes()


def _unpack(path: Path, file: BinaryIO) -> None:
    try:
        with path.open("rb") as packed:
            about = json.loads(packed.readline())
            if about["format"] != _FORMAT:
                raise ValueError(f"format {about['format']} is not known")
            digest, size = xxhash.xxh3_64(), 0
            for piece in _pieces(packed, about):
                digest.update(piece)
                size += len(piece)
                file.write(piece)
        if (size, digest.hexdigest()) != (about["size"], about["xxh3"]):
            raise ValueError("its checksum is not that of the shard that was packed")
    except (ValueError, KeyError, TypeError, zlib.error, struct.error) as error:
        raise StoreError(f"{path} is damaged: {error}; pack the store again") from error


def _pieces(packed: BinaryIO, about: dict[str, Any]) -> Iterator[bytes]:
    rows, points, hidden_size = about["shape"]
    yield packed.read(about["head"])
    counts = [min(about["chunk"], rows - start) for start in range(0, rows, about["chunk"])]

    def read(count: int) -> tuple[int, bytes, bytes]:
        [upper] = _SIZE.unpack(packed.read(_SIZE.size))
        if upper > 2 * count * points * hidden_size + _CHUNK_BYTES:
            raise ValueError(f"a chunk of {upper:,} bytes")
        return count, packed.read(upper), packed.read(count * points * hidden_size)

    def unpack(chunk: tuple[int, bytes, bytes]) -> bytes:
        count, upper, lower = chunk
        size = count * points * hidden_size
        found = bytearray(zlib.decompress(upper, -zlib.MAX_WBITS))
        if (len(found), len(lower)) != (size, size):
            raise ValueError("a chunk is of another size")
        upper_LNH = torch.frombuffer(found, dtype=torch.uint8).view(points, count, hidden_size)
        lower_NLH = torch.frombuffer(bytearray(lower), dtype=torch.uint8)
        lower_NLH = lower_NLH.view(count, points, hidden_size)
        return _bytes_of(torch.stack([lower_NLH, upper_LNH.transpose(0, 1)], dim=-1))

    with ThreadPoolExecutor(_THREADS) as threads:
        for some in batched(counts, 2 * _THREADS, strict=False):
            yield from threads.map(unpack, [read(count) for count in some])
    yield packed.read()
