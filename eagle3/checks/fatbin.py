"""The GPU code in a shared library, read from its ELF sections without running or loading it.

The section `.nv_fatbin` is a row of containers, one for each compiled source file. A container
holds entries: machine code (SASS) for one compute capability, or PTX, which the driver compiles
for any later one. The layout is not documented; it was read from libraries that CUDA 12.8 and
12.9 built, and what it gives agrees with `cuobjdump --list-elf --list-ptx` for them.
"""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_ELF64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_SECTION_TABLE = struct.Struct("<Q")  # e_shoff, at 0x28
_SECTION_COUNT = struct.Struct("<HH")  # e_shnum and e_shstrndx, at 0x3C
_SECTION = struct.Struct("<IIQQQQIIQQ")
_FATBIN_SECTION = b".nv_fatbin\0"
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, bytes of the header, bytes of the entries
_CONTAINER_MAGIC = 0xBA55ED50
# kind, version, bytes of the header, bytes of the code, ..., minor and major of the code's own
# version, compute capability times ten, ..., flags
_ENTRY = struct.Struct("<HHIQ8xHHI8xQ")
_KINDS: dict[int, Literal["ptx", "sass"]] = {1: "ptx", 2: "sass"}
# Code such as sm_90a, which runs on no other compute capability.
_ONE_CAPABILITY = 0x100000
_ALIGNMENT = 8


@dataclass(frozen=True)
class GpuCode:
    """SASS or PTX for `capability`, such as (9, 0).

    `version` is the version of PTX that the code is written in, and of no use for SASS. `exact`
    code runs on this capability alone.
    """

    kind: Literal["ptx", "sass"]
    capability: tuple[int, int]
    version: tuple[int, int]
    exact: bool = False

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Whether a GPU of `capability` takes it, PTX by way of a driver that knows `version`."""
        if self.exact:
            return self.capability == capability
        if self.kind == "sass" and self.capability[0] != capability[0]:
            return False
        return self.capability <= capability


def read_gpu_code(library: Path) -> tuple[frozenset[GpuCode], ...]:
    """What each compiled source file in `library` brings; empty for a library without GPU code.

    Raises OSError where it cannot be read, ValueError where it is no ELF library for 64 bits.
    """
    with (
        library.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        if content[:6] != _ELF64_LITTLE_ENDIAN:
            raise ValueError(f"{library} is no 64-bit ELF file")
        return tuple(
            frozenset(_entries(content, container))
            for start, size in _fatbin_sections(content)
            for container in _containers(content, start, start + size)
        )


def _fatbin_sections(content: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Offset and size of each."""
    (table,) = _SECTION_TABLE.unpack_from(content, 0x28)
    count, names_index = _SECTION_COUNT.unpack_from(content, 0x3C)
    sections = [_SECTION.unpack_from(content, table + n * _SECTION.size) for n in range(count)]
    names = sections[names_index][4]
    for name, _, _, _, offset, size, *_ in sections:
        if content[names + name : names + name + len(_FATBIN_SECTION)] == _FATBIN_SECTION:
            yield offset, size


def _containers(content: mmap.mmap, position: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the entries of each begin and end."""
    while position + _CONTAINER.size <= end:
        magic, _, header, size = _CONTAINER.unpack_from(content, position)
        if magic != _CONTAINER_MAGIC:
            # Padding between the parts that were linked together.
            position += _ALIGNMENT
            continue
        yield position + header, position + header + size
        position += -(-(header + size) // _ALIGNMENT) * _ALIGNMENT


def _entries(content: mmap.mmap, container: tuple[int, int]) -> Iterator[GpuCode]:
    position, end = container
    while position < end:
        kind, _, header, size, minor, major, capability, flags = _ENTRY.unpack_from(
            content, position
        )
        if kind in _KINDS:
            yield GpuCode(
                _KINDS[kind],
                divmod(capability, 10),
                (major, minor),
                exact=bool(flags & _ONE_CAPABILITY),
            )
        position += header + size
