"""A layer's plan, and the members that come of it: files of wheels, held against their RECORDs."""

import csv
import importlib.util
import io
import json
import marshal
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.oci.contents import Entry
from tools.oci.errors import ImageError
from tools.oci.layer import Member, file_member, link_member

# Where Debian's Python looks without being told.
SITE = "usr/local/lib/python3.13/dist-packages"
_TAG = "cpython-313"
_PYC_HEADER = 16
# marshal version 2 writes no back references, whose presence depends on what the compiling
# process had compiled before: the same source then gives the same bytes.
_MARSHAL_VERSION = 2


@dataclass(frozen=True)
class Planned:
    """A file of site-packages: its distribution, and its SHA-256 (none: RECORD itself)."""

    path: str
    distribution: str
    sha256: str
    executable: bool = False


def read_record(record: Path) -> list[list[str]]:
    """Rows [path, "sha256=...", size] of a RECORD."""
    with record.open(newline="", encoding="utf-8") as stream:
        return [row for row in csv.reader(stream) if row]


def write_plan(path: Path, files: Iterable[Planned]) -> None:
    path.write_text("".join(json.dumps(asdict(file)) + "\n" for file in files), encoding="utf-8")


def read_plan(path: Path) -> list[Planned]:
    with path.open(encoding="utf-8") as file:
        return [Planned(**json.loads(line)) for line in file]


def members(files: Iterable[Planned], site: Path, links: Mapping[str, str]) -> list[Member]:
    """The members of a layer, byte code and shortened RECORDs included.

    Args:
        files: of one layer.
        site: the site-packages that they are in.
        links: path -> target of files that are replaced by a link.
    """
    files = list(files)
    present = {file.path for file in files}
    result = []
    for file in files:
        if file.path in links:
            result.append(link_member(f"{SITE}/{file.path}", links[file.path]))
        elif not file.sha256:
            text = _shortened(site / file.path, present - links.keys())
            result.append(file_member(f"{SITE}/{file.path}", text))
        else:
            mode = 0o755 if file.executable else 0o644
            entry = Entry(f"{SITE}/{file.path}", "file", mode, sha256=file.sha256)
            result.append(Member(entry, site / file.path))
            result += _byte_code(file.path, site)
    return result


def _byte_code(path: str, site: Path) -> list[Member]:
    """The module's byte code, if it was compiled; ImageError where it is another source's."""
    source = site / path
    cache = f"{os.path.dirname(path)}/__pycache__/{source.stem}.{_TAG}.pyc".lstrip("/")
    if source.suffix != ".py" or not (site / cache).exists():
        return []
    data = (site / cache).read_bytes()
    header, code = data[:_PYC_HEADER], data[_PYC_HEADER:]
    if header[8:] != importlib.util.source_hash(source.read_bytes()):
        raise ImageError(f"{cache} is not the byte code of {path}: build the environment again")
    return [
        file_member(
            f"{SITE}/{cache}", header + marshal.dumps(marshal.loads(code), _MARSHAL_VERSION)
        )
    ]


def _shortened(record: Path, present: set[str]) -> bytes:
    """The rows of a RECORD whose files are in the image: what verifies an installation reads it."""
    text = io.StringIO()
    rows = [row for row in read_record(record) if row[0] in present]
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
