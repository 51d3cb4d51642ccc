"""Reads a Debian package with the standard library: an ar archive of two tars (deb(5))."""

import io
import re
import tarfile
from pathlib import Path

from tools.oci.errors import ImageError

_MAGIC = b"!<arch>\n"
_HEADER = 60


class Deb:
    """One package file. ImageError where it is not one."""

    def __init__(self, file: Path) -> None:
        self._members = _ar_members(file)
        self._file = file
        self.fields = _fields(self.control().decode())
        self.name = self.fields["Package"]
        self.version = self.fields["Version"]

    def control(self) -> bytes:
        """The package's control file."""
        return self._metadata("control")

    def md5sums(self) -> bytes:
        """The package's list of files; empty where it has none."""
        return self._metadata("md5sums")

    def copyright(self) -> str:
        """Text of its copyright file; empty where that is in another package."""
        with self.files() as archive:
            for item in archive:
                if item.isfile() and re.fullmatch(r"\./usr/share/doc/[^/]+/copyright", item.name):
                    stream = archive.extractfile(item)
                    return stream.read().decode(errors="replace") if stream else ""
        return ""

    def files(self) -> tarfile.TarFile:
        """The files that it installs."""
        return self._tar("data.tar")

    def _metadata(self, name: str) -> bytes:
        with self._tar("control.tar") as archive:
            for item in archive:
                if item.name.removeprefix("./") == name:
                    stream = archive.extractfile(item)
                    return stream.read() if stream else b""
        return b""

    def _tar(self, stem: str) -> tarfile.TarFile:
        for name, data in self._members.items():
            if name.startswith(stem):
                return tarfile.open(fileobj=io.BytesIO(data))
        raise ImageError(f"{self._file} holds no {stem}: fetch the package again")


def _ar_members(file: Path) -> dict[str, bytes]:
    data = file.read_bytes()
    if not data.startswith(_MAGIC):
        raise ImageError(f"{file} is not a Debian package")
    members = {}
    at = len(_MAGIC)
    while at + _HEADER <= len(data):
        header = data[at : at + _HEADER]
        name, size = header[:16].decode().strip().rstrip("/"), int(header[48:58])
        at += _HEADER
        members[name] = data[at : at + size]
        at += size + size % 2
    return members


def _fields(control: str) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z0-9-]+): *(.*)$", control, re.MULTILINE))
