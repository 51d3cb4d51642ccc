"""Writes stand-ins for the CUDA libraries that torch is linked with and a CPU never calls.

The package index carries one x86-64 build of torch, linked with 4.4 GB of CUDA libraries that
must be present before `import torch` works at all. On the CPU stack each is replaced by a tiny
ELF shared object with the right soname that defines exactly the symbols torch imports from it.
Every function returns 1, which each of these interfaces documents as an error; torch finds no
driver long before it could call one.

Layout after the System V ABI, chapters 4 and 5, and the symbol versioning of the Linux
Standard Base.
"""

import struct
from pathlib import Path
from typing import TypedDict

_ELF_HEADER_SIZE = 64
_PROGRAM_HEADER_SIZE = 56
_PAGE = 0x1000
# mov eax, 1; ret
_RETURN_ONE = b"\xb8\x01\x00\x00\x00\xc3"

_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 4, 5, 6, 10, 11, 14
_DT_VERSYM, _DT_VERDEF, _DT_VERDEFNUM = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD
_GLOBAL_FUNCTION = 0x12
_EM_X86_64, _ET_DYN = 62, 3


class StubLibrary(TypedDict):
    """What a stub must offer: its soname, its one symbol version ("" for none), its symbols."""

    soname: str
    version: str
    symbols: list[str]


def write_stubs(libraries: dict[str, StubLibrary], folder: Path) -> int:
    """Writes each library to `folder`/<its key>; returns how many were written.

    Raises:
        FileExistsError: the real library is there; a stub must never replace it.
    """
    for path, library in libraries.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as stream:
            stream.write(stub_library(library))
        file.chmod(0o755)
    return len(libraries)


def stub_library(library: StubLibrary) -> bytes:
    """Returns the bytes of an x86-64 shared object that defines the library's symbols."""
    names = sorted(library["symbols"])
    strings = _StringTable()
    soname = strings.add(library["soname"])
    name_offsets = [strings.add(name) for name in names]
    version = strings.add(library["version"]) if library["version"] else 0

    image = _Image(_ELF_HEADER_SIZE + 4 * _PROGRAM_HEADER_SIZE)
    code = image.add(_RETURN_ONE)
    symbols = b"\0" * 24 + b"".join(
        struct.pack("<IBBHQQ", offset, _GLOBAL_FUNCTION, 0, 1, code, len(_RETURN_ONE))
        for offset in name_offsets
    )
    dynamic = [
        (_DT_SONAME, soname),
        (_DT_SYMTAB, image.add(symbols)),
        (_DT_SYMENT, 24),
        (_DT_STRTAB, image.add(bytes(strings.data))),
        (_DT_STRSZ, len(strings.data)),
        (_DT_HASH, image.add(_hash_table(names))),
    ]
    if version:
        of_each_symbol = struct.pack(f"<{len(names) + 1}H", 0, *[2] * len(names))
        dynamic += [
            (_DT_VERSYM, image.add(of_each_symbol)),
            (_DT_VERDEF, image.add(_version_definitions(library, soname, version))),
            (_DT_VERDEFNUM, 2),
        ]
    return _assemble(image, dynamic)


class _StringTable:
    def __init__(self) -> None:
        self.data = bytearray(b"\0")

    def add(self, text: str) -> int:
        offset = len(self.data)
        self.data += text.encode() + b"\0"
        return offset


class _Image:
    """Bytes of the file from `start` on, each piece aligned to 16."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.data = bytearray()

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def add(self, piece: bytes) -> int:
        self.data += b"\0" * (-self.end % 16)
        offset = self.end
        self.data += piece
        return offset


def _assemble(image: _Image, dynamic: list[tuple[int, int]]) -> bytes:
    read_only_end = image.end
    table = b"".join(struct.pack("<QQ", *entry) for entry in [*dynamic, (0, 0)])
    offset = image.add(table)
    # The dynamic section is written to at load time: its own page, mapped writable.
    address = offset + _PAGE
    headers = b"".join(
        struct.pack("<IIQQQQQQ", kind, flags, start, at, at, size, size, align)
        for kind, flags, start, at, size, align in (
            (_PT_LOAD, 5, 0, 0, read_only_end, _PAGE),
            (_PT_LOAD, 6, offset, address, len(table), _PAGE),
            (_PT_DYNAMIC, 6, offset, address, len(table), 8),
            (_PT_GNU_STACK, 6, 0, 0, 0, 16),
        )
    )
    elf_header = b"\x7fELF\x02\x01\x01" + b"\0" * 9
    elf_header += struct.pack(
        "<HHIQQQIHHHHHH",
        *(_ET_DYN, _EM_X86_64, 1, 0, _ELF_HEADER_SIZE, 0, 0, _ELF_HEADER_SIZE),
        *(_PROGRAM_HEADER_SIZE, 4, 64, 0, 0),
    )
    return elf_header + headers + bytes(image.data)


def _version_definitions(library: StubLibrary, soname: int, version: int) -> bytes:
    definitions = b""
    entries = ((1, 1, library["soname"], soname, 28), (0, 2, library["version"], version, 0))
    for flags, index, text, offset, following in entries:
        definitions += struct.pack("<HHHHIII", 1, flags, index, 1, _elf_hash(text), 20, following)
        definitions += struct.pack("<II", offset, 0)
    return definitions


def _hash_table(names: list[str]) -> bytes:
    bucket_count = max(1, len(names))
    buckets = [0] * bucket_count
    chain = [0] * (len(names) + 1)
    for index, name in enumerate(names, 1):
        bucket = _elf_hash(name) % bucket_count
        chain[index], buckets[bucket] = buckets[bucket], index
    return struct.pack(
        f"<II{bucket_count}I{len(chain)}I", bucket_count, len(chain), *buckets, *chain
    )


def _elf_hash(name: str) -> int:
    """The hash of the System V ABI, chapter 5."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value
