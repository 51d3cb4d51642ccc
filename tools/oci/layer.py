"""Writes one layer: a tar whose bytes depend on paths and contents alone, gzipped.

Order, owners, modes and times are fixed. The compressor is zlib of the pinned interpreter at
level 1: its output is the same on every processor, which igzip and zlib-ng do not promise.
"""

import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from tools.oci.contents import Entry, Layer, write_contents
from tools.oci.errors import ImageError

_BLOCK = 1 << 20
_LEVEL = 1
_GZIP_WRAPPER = 31
FOLDER_MODE = 0o755


@dataclass(frozen=True)
class Member:
    """An entry and where its bytes are; an entry with a SHA-256 must turn out to have it."""

    entry: Entry
    source: Path | bytes = b""


def file_member(path: str, source: Path | bytes, *, executable: bool = False) -> Member:
    return Member(Entry(path, "file", 0o755 if executable else 0o644), source)


def link_member(path: str, target: str) -> Member:
    return Member(Entry(path, "link", 0o777, target=target))


def folder_member(path: str, mode: int = FOLDER_MODE, owner: int = 0) -> Member:
    return Member(Entry(path, "folder", mode, owner))


def write_layer(
    name: str,
    members: Iterable[Member],
    blob: Path,
    contents: Path,
    *,
    lower: Mapping[str, Entry] | None = None,
) -> Layer:
    """Writes `blob` (tar.gz) and `contents`; returns the layer.

    Args:
        name: of the layer, for people.
        members: in any order; folders above them are added.
        blob: file to write.
        contents: file to write, see tools/oci/contents.py.
        lower: what the layers below hold. A member that is there already is left out.

    Raises:
        ImageError: a path comes twice, differs from the layer below, or has other bytes than
            its SHA-256 says.
    """
    chosen = _distinct(members, lower or {})
    entries: list[Entry] = []
    with blob.open("wb") as file:
        sink = _Sink(file)
        with tarfile.open(
            fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_BLOCK
        ) as archive:
            for path in sorted(chosen):
                entries.append(_add(archive, chosen[path]))
        layer = sink.finish(name)
    write_contents(contents, layer, entries)
    return layer


def _distinct(members: Iterable[Member], lower: Mapping[str, Entry]) -> dict[str, Member]:
    chosen: dict[str, Member] = {}
    for member in members:
        path = member.entry.path
        if path in chosen and chosen[path] != member:
            raise ImageError(f"/{path} comes twice, with different contents")
        below = lower.get(path)
        if below is None:
            chosen[path] = member
        elif not _same(member, below):
            raise ImageError(f"/{path} differs from the file of a lower layer")
    for path in list(chosen):
        for parent in PurePosixPath(path).parents:
            above = str(parent)
            if above != "." and above not in chosen and above not in lower:
                chosen[above] = folder_member(above)
    return chosen


def _same(member: Member, below: Entry) -> bool:
    """Whether the layers below hold this very member."""
    entry = member.entry
    if entry.kind != "file":
        return entry == below
    with _open(member.source) as stream:
        found = hashlib.sha256(stream.read()).hexdigest()
    return (below.kind, below.mode, below.sha256) == ("file", entry.mode, found)


def _open(source: Path | bytes) -> BinaryIO:
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def _add(archive: tarfile.TarFile, member: Member) -> Entry:
    entry = member.entry
    header = tarfile.TarInfo(entry.path)
    header.mode, header.uid, header.gid, header.mtime = entry.mode, entry.owner, entry.owner, 0
    if entry.kind != "file":
        header.type = tarfile.DIRTYPE if entry.kind == "folder" else tarfile.SYMTYPE
        header.linkname = entry.target
        archive.addfile(header)
        return entry
    source = member.source
    header.size = len(source) if isinstance(source, bytes) else source.stat().st_size
    with _open(source) as stream:
        reader = _HashingReader(stream)
        archive.addfile(header, reader)
    found = reader.sha256.hexdigest()
    if entry.sha256 and found != entry.sha256:
        raise ImageError(
            f"/{entry.path} has SHA-256 {found} and its wheel's RECORD says {entry.sha256}: the "
            "installed file was altered; delete the environment in the cache and build again"
        )
    return replace(entry, size=header.size, sha256=found)


class _HashingReader(io.RawIOBase):
    """Hashes what is read through it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.sha256 = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.sha256.update(data)
        return data


class _Sink(io.RawIOBase):
    """Compresses what is written to it, hashing both sides."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._plain, self._packed = hashlib.sha256(), hashlib.sha256()
        self._compressor = zlib.compressobj(_LEVEL, wbits=_GZIP_WRAPPER)
        self._size = 0

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        self._plain.update(data)
        self._store(self._compressor.compress(data))
        return len(data)

    def finish(self, name: str) -> Layer:
        self._store(self._compressor.flush())
        return Layer(
            name,
            f"sha256:{self._packed.hexdigest()}",
            self._size,
            f"sha256:{self._plain.hexdigest()}",
        )

    def _store(self, data: bytes) -> None:
        self._packed.update(data)
        self._size += len(data)
        self._file.write(data)
