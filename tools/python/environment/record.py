"""Keeps the RECORD files of installed distributions true.

A RECORD (PEP 376, PEP 627) lists each file of a distribution with its SHA-256 and size. Tools that
verify an installation read it, so a patched or added file must be written down as it now is.
"""

import base64
import csv
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path


def record_row(site: Path, path: str) -> list[str]:
    """Returns [path, "sha256=...", size] of a file below `site`."""
    content = (site / path).read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return [path, f"sha256={digest}", str(len(content))]


def refresh(site: Path, paths: Iterable[str]) -> None:
    """Writes the current hash and size of `paths` into the RECORDs that own them.

    A path that no RECORD lists is added to the distribution that owns its top-level package.

    Raises:
        LookupError: no installed distribution owns the path's package.
    """
    pending = set(paths)
    records = sorted(site.glob("*.dist-info/RECORD"))
    for record in records:
        rows = _read(record)
        changed = [i for i, row in enumerate(rows) if row and row[0] in pending]
        for i in changed:
            pending.discard(rows[i][0])
            rows[i] = record_row(site, rows[i][0])
        if changed:
            _write(record, rows)
    for path in sorted(pending):
        owner = _owner(records, path)
        _write(owner, [*_read(owner), record_row(site, path)])


def add_distribution(
    site: Path, name: str, version: str, files: Iterable[str] = (), folder: str = ""
) -> None:
    """Makes `importlib.metadata` know a distribution that no wheel brought.

    Args:
        site: the site-packages directory.
        name: the distribution's name.
        version: its version.
        files: the paths it owns.
        folder: stem of its metadata folder, where that is not name-version.
    """
    metadata = site / f"{folder or f'{name}-{version}'}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    own = f"{metadata.name}/RECORD"
    rows = [record_row(site, path) for path in [*files, f"{metadata.name}/METADATA"]]
    _write(site / own, [*rows, [own, "", ""]])


def _owner(records: list[Path], path: str) -> Path:
    package = path.split("/")[0] + "/"
    for record in records:
        if any(row and row[0].startswith(package) for row in _read(record)):
            return record
    raise LookupError(f"no installed distribution owns {path}")


def _read(record: Path) -> list[list[str]]:
    with record.open(newline="", encoding="utf-8") as stream:
        return list(csv.reader(stream))


def _write(record: Path, rows: list[list[str]]) -> None:
    # A new file: the old one may be a hard link into the installer's cache.
    fresh = record.with_name("RECORD.new")
    with fresh.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)
    os.replace(fresh, record)
