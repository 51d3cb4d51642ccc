"""Which files of a merged site-packages go into an image, and into which of its layers.

The RECORD of each distribution is what counts: a file that no RECORD lists gets into no image.
"""

import base64
import fnmatch
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.oci.errors import ImageError
from tools.oci.wheels import Planned, read_record
from tools.python.environment.stubs import stub_library

_RECORD_SUFFIX = ".dist-info/RECORD"


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
