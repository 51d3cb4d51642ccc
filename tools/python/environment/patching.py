"""Applies unified diffs exactly: every line in the place the diff names, or not at all.

GNU patch, git and Bazel's own patch function search for a hunk's lines near the place it
names, and report success. After a version bump that is how a fix ends up in the wrong
function; here the slightest difference is an error that names the file and the hunk.
"""

import dataclasses
import hashlib
import os
import re
from pathlib import Path

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_FILE = "/dev/null"
# What git writes between the hunks of two files.
_BETWEEN = ("diff --git ", "index ", "new file mode ")


class PatchError(Exception):
    """A patch that cannot be read or does not apply exactly."""


@dataclasses.dataclass(frozen=True)
class Hunk:
    """One changed place: `old` lines at 1-based line `start` become `new`; newlines included."""

    header: str
    start: int
    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class FileChange:
    """The hunks of one file; `path` is relative to site-packages."""

    path: str
    creates: bool
    hunks: tuple[Hunk, ...]


@dataclasses.dataclass(frozen=True)
class Patch:
    """A patch file: the prose before its first diff, and what it changes."""

    name: str
    digest: str
    header: str
    changes: tuple[FileChange, ...]


def read_patch(file: Path) -> Patch:
    """Parses a `-p1` unified diff.

    Raises:
        PatchError: not a diff, a hunk whose counts do not add up, a line outside the hunks, or a
            form that is not supported (renames, deletions, binary files, a missing last newline).
    """
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PatchError(f"{file.name}: is not UTF-8: {error}") from error
    lines = text.splitlines(keepends=True)
    first = next(
        (i for i, line in enumerate(lines) if line.startswith(("diff --git ", "--- a/", "--- /"))),
        len(lines),
    )
    changes = []
    at = first
    while at < len(lines):
        if lines[at].startswith("--- "):
            change, at = _read_change(file.name, lines, at)
            changes.append(change)
        elif lines[at].startswith(("rename ", "deleted file", "Binary files", "GIT binary")):
            raise PatchError(f"{file.name}: unsupported: {lines[at].strip()}")
        elif not lines[at].strip() or lines[at].startswith(_BETWEEN):
            at += 1
        else:
            # Passed over, it would be a part of the patch that is never applied.
            raise PatchError(f"{file.name}: line {at + 1} is in no hunk: {lines[at].rstrip()!r}")
    if not changes:
        raise PatchError(f"{file.name}: holds no unified diff")
    paths = [change.path for change in changes]
    if twice := sorted({path for path in paths if paths.count(path) > 1}):
        raise PatchError(f"{file.name}: changes {', '.join(twice)} twice: join the hunks")
    return Patch(
        name=file.name,
        digest=hashlib.sha256(text.encode()).hexdigest(),
        header="".join(lines[:first]),
        changes=tuple(changes),
    )


def _read_change(name: str, lines: list[str], at: int) -> tuple[FileChange, int]:
    old_path = lines[at][4:].split("\t")[0].strip()
    if at + 1 >= len(lines) or not lines[at + 1].startswith("+++ b/"):
        raise PatchError(f"{name}: no '+++ b/...' line after '--- {old_path}'")
    path = lines[at + 1][6:].split("\t")[0].strip()
    if old_path not in (_NO_FILE, f"a/{path}"):
        raise PatchError(f"{name}: renames are not supported ({old_path} to {path})")
    if path.startswith("/") or ".." in path.split("/"):
        raise PatchError(f"{name}: {path} leaves site-packages")
    hunks = []
    at += 2
    while at < len(lines) and lines[at].startswith("@@ "):
        hunk, at = _read_hunk(name, path, lines, at)
        hunks.append(hunk)
    if not hunks:
        raise PatchError(f"{name}: no hunk for {path}")
    return FileChange(path, old_path == _NO_FILE, tuple(hunks)), at


def _read_hunk(name: str, path: str, lines: list[str], at: int) -> tuple[Hunk, int]:
    header = lines[at].strip()
    match = _HUNK.match(header)
    if not match:
        raise PatchError(f"{name}: {path}: malformed hunk header '{header}'")
    start = int(match[1])
    old_left, new_left = int(match[2] or 1), int(match[4] or 1)
    old: list[str] = []
    new: list[str] = []
    at += 1
    while old_left > 0 or new_left > 0:
        line = lines[at] if at < len(lines) else ""
        # An editor may have stripped the lone space of an empty context line.
        mark, body = (" ", line) if line == "\n" else (line[:1], line[1:])
        if mark not in (" ", "-", "+"):
            raise PatchError(f"{name}: {path}: hunk '{header}' ends before its counts say so")
        if mark in (" ", "-"):
            old.append(body)
            old_left -= 1
        if mark in (" ", "+"):
            new.append(body)
            new_left -= 1
        at += 1
    if old_left or new_left:
        raise PatchError(f"{name}: {path}: hunk '{header}' holds more lines than its counts say")
    if at < len(lines) and lines[at].startswith("\\"):
        raise PatchError(f"{name}: {path}: a missing last newline is not supported")
    return Hunk(header, start, tuple(old), tuple(new)), at


def apply_patch(patch: Patch, site: Path) -> list[str]:
    """Applies a patch below `site`, whole or not at all.

    Returns:
        The changed paths, relative to `site`.

    Raises:
        PatchError: a line is not exactly what and where the patch says.
    """
    results = {change.path: _patched_text(patch.name, change, site) for change in patch.changes}
    for path, text in results.items():
        _replace(site / path, text)
    return sorted(results)


def _patched_text(name: str, change: FileChange, site: Path) -> str:
    file = site / change.path
    if change.creates:
        if file.exists():
            raise PatchError(f"{name}: {change.path} is to be created but is there already")
        lines: list[str] = []
    else:
        if not file.is_file():
            raise PatchError(f"{name}: {change.path} is not in the installed packages")
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    result: list[str] = []
    done = 0
    for number, hunk in enumerate(change.hunks, 1):
        # An empty old side names the line BEFORE the insertion.
        begin = hunk.start - 1 if hunk.old else hunk.start
        end = begin + len(hunk.old)
        if begin < done or tuple(lines[begin:end]) != hunk.old:
            raise PatchError(
                f"{name}: {change.path}: hunk {number} '{hunk.header}' does not apply: "
                + _difference(lines[begin:end], hunk, begin)
            )
        result += [*lines[done:begin], *hunk.new]
        done = end
    return "".join([*result, *lines[done:]])


def _difference(found: list[str], hunk: Hunk, begin: int) -> str:
    for offset, expected in enumerate(hunk.old):
        actual = found[offset] if offset < len(found) else None
        if actual != expected:
            seen = "the end of the file" if actual is None else repr(actual.rstrip("\n"))
            return f"line {begin + offset + 1} should be {expected.rstrip()!r} and is {seen}"
    return "it overlaps the hunk before it"


def _replace(file: Path, text: str) -> None:
    """Writes a NEW file: the old one may be a hard link into the installer's cache."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(file.name + ".patched")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, file)
