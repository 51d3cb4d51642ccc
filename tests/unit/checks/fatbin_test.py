"""GPU code is found in a library by its bytes alone."""

import struct
from pathlib import Path

import pytest

from eagle3.checks.fatbin import GpuCode, read_gpu_code

EXACT = 0x100000
KIND = {"ptx": 1, "sass": 2}


def entry(kind: str, capability: int, version: tuple[int, int], flags: int = 0) -> bytes:
    """An entry of ten bytes of code; its header is longer than what is known of it."""
    code = b"0123456789"
    header = struct.pack(
        "<HHIQ8xHHI8xQ",
        KIND[kind],
        0x101,
        64,
        len(code),
        version[1],
        version[0],
        capability,
        flags,
    )
    return header.ljust(64, b"\0") + code


def container(*entries: bytes) -> bytes:
    content = b"".join(entries)
    whole = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content
    return whole + bytes(-len(whole) % 8)


def library(path: Path, fatbin: bytes) -> Path:
    """An ELF file with three sections: none, the names, the GPU code."""
    names = b"\0.shstrtab\0.nv_fatbin\0"
    table = 64 + len(names) + len(fatbin)
    header = b"\x7fELF\x02\x01\x01".ljust(0x28, b"\0") + struct.pack("<Q", table)
    header = header.ljust(0x3C, b"\0") + struct.pack("<HH", 3, 1)
    sections = [(0, 0, 0), (1, 64, len(names)), (11, 64 + len(names), len(fatbin))]
    packed = b"".join(
        struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, offset, size, 0, 0, 8, 0)
        for name, offset, size in sections
    )
    path.write_bytes(header + names + fatbin + packed)
    return path


def test_each_container_is_a_compiled_file(tmp_path: Path) -> None:
    first = container(entry("sass", 80, (1, 7)), entry("ptx", 80, (8, 8)))
    second = container(entry("sass", 90, (1, 7), EXACT), entry("sass", 120, (1, 8)))
    path = library(tmp_path / "x.so", first + bytes(24) + second)
    assert read_gpu_code(path) == (
        {GpuCode("sass", (8, 0), (1, 7)), GpuCode("ptx", (8, 0), (8, 8))},
        {GpuCode("sass", (9, 0), (1, 7), exact=True), GpuCode("sass", (12, 0), (1, 8))},
    )


def test_a_library_without_gpu_code_has_none(tmp_path: Path) -> None:
    assert read_gpu_code(library(tmp_path / "x.so", b"")) == ()


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.so").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ValueError, match="no 64-bit ELF file"):
        read_gpu_code(tmp_path / "x.so")


@pytest.mark.parametrize(
    ("code", "runs", "runs_not"),
    [
        (GpuCode("sass", (8, 0), (1, 7)), [(8, 0), (8, 9)], [(7, 5), (9, 0), (12, 0)]),
        (GpuCode("sass", (10, 0), (1, 8)), [(10, 0), (10, 3)], [(9, 0), (12, 0)]),
        (GpuCode("sass", (9, 0), (1, 7), exact=True), [(9, 0)], [(10, 0)]),
        (GpuCode("sass", (10, 0), (1, 8), exact=True), [(10, 0)], [(10, 3)]),
        (GpuCode("ptx", (8, 0), (8, 8)), [(8, 0), (9, 0), (12, 1)], [(7, 5)]),
        (GpuCode("ptx", (9, 0), (8, 8), exact=True), [(9, 0)], [(10, 0)]),
    ],
)
def test_machine_code_is_for_one_generation_and_ptx_for_all_later_ones(
    code: GpuCode, runs: list[tuple[int, int]], runs_not: list[tuple[int, int]]
) -> None:
    assert [capability for capability in runs + runs_not if code.runs_on(capability)] == runs
