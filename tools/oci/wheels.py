"""Which files of a merged site-packages belong to which layer, and what bytes they must have.

The RECORD of each distribution is what counts: a file that no RECORD lists gets into no image,
and a listed one must have the listed SHA-256 when it is read.
"""

import base64
import csv
import fnmatch
import hashlib
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
from tools.python.environment.stubs import stub_library

# Where Debian's Python looks without being told.
SITE = "usr/local/lib/python3.13/dist-packages"
_TAG = "cpython-313"
_RECORD_SUFFIX = ".dist-info/RECORD"
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


@dataclass(frozen=True)
class Selection:
    """What an image takes: patterns of distributions and paths, each of which must match."""

    distributions_left_out: tuple[str, ...]
    paths_left_out: tuple[str, ...]


def distribution_name(record: Path) -> str:
    """The normalised name of the distribution that a RECORD belongs to."""
    return record.parent.name.split("-")[0].lower().replace("_", "-").replace(".", "-")


def installed(site: Path, stubs: Path | None) -> list[Planned]:
    """Every listed file of site-packages, and the stubs, sorted by path.

    Raises:
        ImageError: a file is there that neither a RECORD nor the list of stubs knows.
    """
    planned: dict[str, Planned] = {}
    for record in sorted(site.glob(f"*{_RECORD_SUFFIX}")):
        name = distribution_name(record)
        for path, digest, _ in read_record(record):
            if not path.startswith("../"):
                planned[path] = Planned(path, name, _hex(digest), _executable(site / path))
    for path, library in (json.loads(stubs.read_text()) if stubs else {}).items():
        digest = hashlib.sha256(stub_library(library)).hexdigest()
        planned[f"nvidia/{path}"] = Planned(f"nvidia/{path}", "cuda-stubs", digest, True)
    _refuse_strangers(site, planned)
    return [planned[path] for path in sorted(planned)]


def read_record(record: Path) -> list[list[str]]:
    """Rows [path, "sha256=...", size] of a RECORD."""
    with record.open(newline="", encoding="utf-8") as stream:
        return [row for row in csv.reader(stream) if row]


def select(files: Iterable[Planned], selection: Selection) -> list[Planned]:
    """The files that no pattern leaves out.

    Raises:
        ImageError: a pattern leaves nothing out; it is out of date.
    """
    files = list(files)
    used: set[str] = set()

    def left_out(text: str, patterns: Iterable[str]) -> bool:
        matching = [pattern for pattern in patterns if fnmatch.fnmatch(text, pattern)]
        used.update(matching)
        return bool(matching)

    dropped = {
        name
        for name in sorted({file.distribution for file in files})
        if left_out(name, selection.distributions_left_out)
    }
    kept = [
        file
        for file in files
        if file.distribution not in dropped and not left_out(file.path, selection.paths_left_out)
    ]
    idle = {*selection.distributions_left_out, *selection.paths_left_out} - used
    if idle:
        raise ImageError(f"nothing matches the patterns {', '.join(sorted(idle))}: drop them")
    return kept


def group(files: Iterable[Planned], groups: Mapping[str, list[str]]) -> dict[str, list[Planned]]:
    """Layer name -> its files; the first group with a pattern for the distribution takes it."""
    result: dict[str, list[Planned]] = {name: [] for name in groups}
    homes: dict[str, str] = {}
    for file in files:
        if file.distribution not in homes:
            homes[file.distribution] = next(
                name
                for name, patterns in groups.items()
                if any(fnmatch.fnmatch(file.distribution, pattern) for pattern in patterns)
            )
        result[homes[file.distribution]].append(file)
    return result


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


def _refuse_strangers(site: Path, planned: Mapping[str, Planned]) -> None:
    for folder, folders, names in os.walk(site):
        if "__pycache__" in folders:
            folders.remove("__pycache__")
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), site)
            # The installer's lock file is the one thing that it leaves behind.
            if path not in planned and path != ".lock":
                raise ImageError(f"no RECORD lists {path}: build the environment again")


def _hex(digest: str) -> str:
    """ "sha256=<base64>" of a RECORD as hexadecimal digits; "" for the RECORD's own row."""
    encoded = digest.removeprefix("sha256=")
    return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).hex()


def _executable(file: Path) -> bool:
    return os.access(file, os.X_OK)
