"""A machine made of fakes: apt-get, dpkg-deb and pip that serve what a test puts in."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tools.bootstrap import debian
from tools.bootstrap.pins import Pin, Pins

_FAKE_PIP = """\
import os, pathlib, shutil, sys
wheels = pathlib.Path(os.environ["FAKE_WHEELS"])
if (wheels / "offline").exists():
    sys.exit("ERROR: No matching distribution found")
if os.environ.get("PIP_REQUIRE_VIRTUALENV", "0") != "0":
    sys.exit("ERROR: Could not find an activated virtualenv (required).")
requirements = pathlib.Path(sys.argv[sys.argv.index("-r") + 1]).read_text()
for line in requirements.splitlines():
    name, version = line.split()[0].split("==")
    file = wheels / f"{name}-{version}-py3-none-any.whl"
    shutil.copy(file, sys.argv[sys.argv.index("--dest") + 1])
"""


class Machine:
    """A PATH with fake tools, an archive, a package index and an empty cache, under folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.archive = folder / "archive"
        self.bin = folder / "bin"
        self._wheels = folder / "wheels"
        for path in (self.archive, self.bin, self._wheels):
            path.mkdir()
        self.write_tool("apt-get", Path(__file__).with_name("fake_apt.py"), self.archive)
        self.write_tool("dpkg-deb", Path(__file__).with_name("fake_dpkg.py"))
        pip = folder / "site/pip"
        pip.mkdir(parents=True)
        (pip / "__init__.py").touch()
        (pip / "__main__.py").write_text(_FAKE_PIP)
        keyring = folder / "keyring"
        keyring.touch()
        monkeypatch.setattr(debian, "_KEYRINGS", (keyring,))
        monkeypatch.setenv("PATH", f"{self.bin}:/usr/bin:/bin")
        monkeypatch.setenv("PYTHONPATH", f"{pip.parent}:{os.environ.get('PYTHONPATH', '')}")
        monkeypatch.setenv("FAKE_WHEELS", str(self._wheels))
        monkeypatch.setenv("EAGLE3_CACHE", str(self.cache))
        for name in ("EAGLE3_STRICT", "EAGLE3_DEBIAN_MIRROR", "SSL_CERT_FILE"):
            monkeypatch.delenv(name, raising=False)
        self._index: dict[str, Pin] = {}

    def write_tool(self, name: str, script: Path, *arguments: Path) -> None:
        words = " ".join(f"'{word}'" for word in (sys.executable, script, *arguments))
        self.write_program(self.bin / name, f'exec {words} "$@"')

    @staticmethod
    def write_program(path: Path, body: str) -> None:
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def publish(self, name: str, version: str, files: Mapping[str, str | bytes]) -> Pin:
        """Puts a package into the archive in place of any older one; returns its pin."""
        content = _tar(files)
        (self.archive / f"{name}.deb").write_bytes(content)
        pin = Pin(name, version, hashlib.sha256(content).hexdigest(), len(content))
        self._index[name] = pin
        self._write_index()
        return pin

    def withdraw(self, name: str) -> None:
        del self._index[name]
        self._write_index()

    def publish_wheel(self, name: str, version: str, files: Mapping[str, str]) -> Pin:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as wheel:
            for path, text in files.items():
                wheel.writestr(zipfile.ZipInfo(path), text)
        content = buffer.getvalue()
        (self._wheels / f"{name}-{version}-py3-none-any.whl").write_bytes(content)
        return Pin(name, version, hashlib.sha256(content).hexdigest(), len(content))

    def cut_network(self) -> None:
        (self.archive / "offline").touch()
        (self._wheels / "offline").touch()

    def apt_calls(self) -> list[str]:
        log = self.archive / "log"
        return log.read_text().splitlines() if log.exists() else []

    def start(self, code: str) -> subprocess.Popen[str]:
        """Runs code in a process of its own on this machine."""
        keyring = str(self.folder / "keyring")
        setup = (
            "from pathlib import Path\nfrom tools.bootstrap import debian\n"
            f"debian._KEYRINGS = (Path({keyring!r}),)\n"
        )
        environment = {**os.environ, "PYTHONPATH": ":".join([*sys.path, os.environ["PYTHONPATH"]])}
        return subprocess.Popen(
            [sys.executable, "-c", setup + code],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _write_index(self) -> None:
        pins = [vars(pin) for pin in self._index.values()]
        (self.archive / "index.json").write_text(json.dumps(pins))


def pins_of(*debs: Pin, wheels: tuple[Pin, ...] = (), roots: tuple[str, ...] = ()) -> Pins:
    return Pins(suites=("trixie",), roots=roots, extra=(), debs=debs, wheels=wheels)


def _tar(files: Mapping[str, str | bytes]) -> bytes:
    """Values are texts, or bytes for the target of a symbolic link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.mode = 0o755
            if isinstance(content, bytes):
                member.type, member.linkname = tarfile.SYMTYPE, content.decode()
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content.encode()))
    return buffer.getvalue()
