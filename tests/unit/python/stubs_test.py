"""Stub libraries load, answer, and hold just what they are asked to hold."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from tools.python.environment.stubs import StubLibrary, write_stubs

_PLAIN: StubLibrary = {
    "soname": "libplain.so.1",
    "version": "",
    "symbols": ["plainInit", "plainRun", "plainFree"],
}
_VERSIONED: StubLibrary = {
    "soname": "libversioned.so.12",
    "version": "libversioned.so.12",
    "symbols": [f"call{number}" for number in range(164)],
}


@pytest.mark.parametrize("library", [_PLAIN, _VERSIONED], ids=["plain", "versioned"])
def test_every_symbol_resolves_and_returns_an_error(tmp_path: Path, library: StubLibrary) -> None:
    write_stubs({library["soname"]: library}, tmp_path)
    loaded = ctypes.CDLL(str(tmp_path / library["soname"]))
    assert {name: getattr(loaded, name)() for name in library["symbols"]} == dict.fromkeys(
        library["symbols"], 1
    )


def test_no_other_symbol_resolves(tmp_path: Path) -> None:
    write_stubs({"libplain.so.1": _PLAIN}, tmp_path)
    loaded = ctypes.CDLL(str(tmp_path / "libplain.so.1"))
    with pytest.raises(AttributeError, match="undefined symbol: plainStop"):
        _ = loaded.plainStop


def test_a_symbol_resolves_by_its_version(tmp_path: Path) -> None:
    write_stubs({"libversioned.so.12": _VERSIONED}, tmp_path)
    libc = ctypes.CDLL(None)
    libc.dlvsym.restype = ctypes.c_void_p
    libc.dlvsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    handle = ctypes.CDLL(str(tmp_path / "libversioned.so.12"))._handle
    assert libc.dlvsym(handle, b"call7", b"libversioned.so.12")
    assert not libc.dlvsym(handle, b"call7", b"libversioned.so.11")


def test_a_library_without_symbols_loads(tmp_path: Path) -> None:
    empty: StubLibrary = {"soname": "libempty.so.10", "version": "", "symbols": []}
    write_stubs({"libempty.so.10": empty}, tmp_path)
    ctypes.CDLL(str(tmp_path / "libempty.so.10"))


def test_a_real_library_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "libplain.so.1").write_bytes(b"real")
    with pytest.raises(FileExistsError):
        write_stubs({"libplain.so.1": _PLAIN}, tmp_path)
    assert (tmp_path / "libplain.so.1").read_bytes() == b"real"


def test_torch_says_there_is_no_driver() -> None:
    """The stubs of the stack: CUDA is absent in torch's own words, not a crash."""
    code = (
        "import torch\n"
        "assert not torch.cuda.is_available()\n"
        "try:\n"
        "    torch.ones(1).cuda()\n"
        "except (RuntimeError, AssertionError) as error:\n"
        "    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "NVIDIA driver" in result.stdout
