"""Packages of the Debian archive, fetched by the machine's apt-get without touching its state."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from tools.bootstrap import console, process
from tools.bootstrap.cache import FileCache, wrong_hash
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.pins import Pin, Pins
from tools.bootstrap.prefix import exclusive, staging

PINNED = "pinned"
FLOATING = "floating"

_KEYRINGS = tuple(
    Path("/usr/share/keyrings") / f"debian-archive-keyring.{suffix}" for suffix in ("gpg", "pgp")
)
# The suites of Debian proper; what else a machine's sources name is not the main archive.
_SUITES = "bullseye|bookworm|trixie|forky|sid|oldoldstable|oldstable|stable|testing|unstable"
_SOURCE = re.compile(rf"^'(\S+?)/*/dists/(?:{_SUITES})/", re.MULTILINE)
_LOCATION = re.compile(r"^'(\S+)' (\S+) (\d+) SHA256:([0-9a-f]{64})", re.MULTILINE)
_MISMATCH = re.compile(
    r"^E: Failed to fetch (\S+)\s+Hash Sum mismatch"
    r".*?SHA256:([0-9a-f]{64}).*?received.*?SHA256:([0-9a-f]{64})",
    re.MULTILINE | re.DOTALL,
)
_GONE = re.compile(
    r"^E: (?:Version '.*' for '.*' was not found|Unable to locate package .*"
    r"|Package '.*' has no installation candidate|Can't find a source to download .*)$"
)


@dataclass(frozen=True)
class Packages:
    """Fetched package files; state says whether they are the PINNED ones or FLOATING ones."""

    files: tuple[Path, ...]
    state: str


class Archive:
    """A private apt: its own sources, lists and (empty) status, the machine's proxies and keys."""

    def __init__(self, folder: Path, suites: Sequence[str]) -> None:
        """Reads the index of suites into folder; the signature is checked by apt."""
        keyring = next((path for path in _KEYRINGS if path.exists()), None)
        if keyring is None:
            raise BootstrapError(
                "the Debian archive's keyring is missing: apt-get install debian-archive-keyring"
            )
        for name in ("parts", "lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        for name in ("status", "preferences"):
            (folder / name).touch()
        mirror = _mirror()
        sources = folder / "sources.list"
        sources.write_text(
            "".join(f"deb [signed-by={keyring}] {mirror} {suite} main\n" for suite in suites),
            encoding="utf-8",
        )
        options = {
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Default-Release": suites[0],
            "APT::Get::List-Cleanup": "false",
            "APT::Sandbox::User": "root",
            "APT::Update::Error-Mode": "any",
            "Acquire::GzipIndexes": "true",
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
            "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled": "false",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            # A mirror that lags behind is still signed, and every package has its own pin.
            "Acquire::Check-Valid-Until": "false",
            "Dir::Cache": folder / "cache",
            "Dir::Etc::Preferences": folder / "preferences",
            "Dir::Etc::PreferencesParts": folder / "parts",
            "Dir::Etc::SourceList": sources,
            "Dir::Etc::SourceParts": folder / "parts",
            "Dir::State": folder,
            "Dir::State::Lists": folder / "lists",
            "Dir::State::Status": folder / "status",
        }
        self._apt = ["apt-get", "-q", *(f"-o{key}={value}" for key, value in options.items())]
        console.say(f"reading the package index of {', '.join(suites)}, about 10 MB a suite")
        process.run(
            [*self._apt, "update"],
            action=f"read the package index of {', '.join(suites)} (is the network up?)",
            cwd=folder,
        )

    def locate(self, specs: Iterable[str]) -> tuple[list[Pin], list[str]]:
        """Looks up "name" or "name=version": pins of those found, complaints on those gone."""
        status, output = process.attempt([*self._apt, "download", "--print-uris", *specs])
        errors = [line for line in output.splitlines() if line.startswith("E:")]
        gone = [line for line in errors if _GONE.match(line)]
        if len(gone) < len(errors) or (status and not errors):
            raise BootstrapError(f"cannot look up packages: {process.reason(output)}")
        found = []
        for _, file, size, sha256 in _LOCATION.findall(output):
            name, version, _ = file.split("_")
            found.append(Pin(name, unquote(version), sha256, int(size)))
        return found, [line.removeprefix("E: ") for line in gone]

    def closure(self, roots: Iterable[str]) -> dict[str, str]:
        """Name -> version of all that roots need, in one consistent set of the suites."""
        output = process.run(
            [*self._apt, "--simulate", "--no-install-recommends", "install", *roots],
            action="find a consistent set of packages",
        )
        return dict(re.findall(r"^Inst (\S+) \((\S+) ", output, re.MULTILINE))

    def download(self, pins: Sequence[Pin], folder: Path, text: str) -> dict[Pin, Path]:
        """Fetches exactly these packages into folder."""
        folder.mkdir()
        total_bytes = sum(pin.size for pin in pins)
        specs = [f"{pin.name}={pin.version}" for pin in pins]
        with console.download(text, folder, total_bytes):
            status, output = process.attempt([*self._apt, "download", *specs], cwd=folder)
            if status:
                raise BootstrapError(_explain(output))
        return {pin: next(folder.glob(f"{pin.name}_*.deb")) for pin in pins}


def fetch(pins: Pins, cache_root: Path, *, what: str, strict: bool) -> Packages:
    """The packages of pins from the cache, else from the archive.

    Where the archive has dropped a pin that is not in the cache, the suite's current consistent
    set is taken instead with a loud warning; strict refuses that.
    """
    cache = FileCache(cache_root / "debs", ".deb")
    with exclusive(cache.folder, f"fetching packages for {what}"):
        files = {pin: cache.get(pin) for pin in pins.debs}
        missing = [pin for pin, file in files.items() if file is None]
        state = PINNED
        if missing:
            with staging(cache.folder) as stage:
                archive = Archive(stage / "apt", pins.suites)
                found, gone = archive.locate(f"{pin.name}={pin.version}" for pin in missing)
                if gone:
                    _refuse_or_warn(what, gone, strict)
                    state = FLOATING
                    found, gone = archive.locate(current_names(archive, pins))
                    if gone:
                        raise BootstrapError(f"the archive has no such package: {'; '.join(gone)}")
                    files = {pin: cache.get(pin) for pin in found}
                    missing = [pin for pin, file in files.items() if file is None]
                else:
                    _compare(missing, found)
                # Of a floating set all may be here already, and apt-get insists on a name.
                text = f"{len(missing)} packages for {what}"
                fetched = archive.download(missing, stage / "debs", text) if missing else {}
                for pin, file in fetched.items():
                    files[pin] = cache.put(file, pin)
    return Packages(tuple(file for file in files.values() if file is not None), state)


def current_names(archive: Archive, pins: Pins) -> list[str]:
    """The names that pins' packages have now: a library's name changes with its soname.

    Without roots the names are taken as they are: a stable suite does not change them.
    """
    if not pins.roots:
        return [pin.name for pin in pins.debs]
    needed = archive.closure(pins.roots)
    names = [pin.name for pin in pins.debs if pin.name in needed or pin.name in pins.extra]
    replaced = {_stem(pin.name) for pin in pins.debs} - {_stem(name) for name in names}
    names += [name for name in needed if _stem(name) in replaced]
    return names


def unpack(packages: Packages, folder: Path) -> None:
    for file in packages.files:
        process.run(["dpkg-deb", "-x", file, folder], action=f"unpack {file.name}")


def _stem(name: str) -> str:
    """libabsl20260526 -> libabsl, libprotobuf32t64 -> libprotobuf."""
    return re.sub(r"[\d.]+(t64)?$", "", name)


def _mirror() -> str:
    """The Debian mirror of EAGLE3_DEBIAN_MIRROR, else of the machine's own apt sources."""
    if os.environ.get("EAGLE3_DEBIAN_MIRROR"):
        return os.environ["EAGLE3_DEBIAN_MIRROR"].rstrip("/")
    _, output = process.attempt(["apt-get", "update", "--print-uris"])
    mirror = _SOURCE.search(output)
    if mirror is None:
        raise BootstrapError(
            "this machine's apt sources name no Debian archive: add one, or set "
            "EAGLE3_DEBIAN_MIRROR to the address of a mirror"
        )
    return mirror.group(1)


def _explain(output: str) -> str:
    """Why `apt-get download` failed."""
    mismatch = _MISMATCH.search(output)
    if mismatch is None:
        return f"cannot fetch packages: {process.reason(output)}; check the network and try again"
    address, expected, found = mismatch.groups()
    return wrong_hash(address.rpartition("/")[2], expected, found)


def _compare(pins: Sequence[Pin], found: Sequence[Pin]) -> None:
    """The index must give each pinned version the pinned hash."""
    by_name = {pin.name: pin for pin in found}
    for pin in pins:
        other = by_name.get(pin.name)
        if other is None:
            raise BootstrapError(f"the archive's index does not say where {pin.name} is: try again")
        if other.sha256 != pin.sha256:
            raise BootstrapError(
                wrong_hash(f"{pin.name} {pin.version} (index)", pin.sha256, other.sha256)
            )


def _refuse_or_warn(what: str, gone: Sequence[str], strict: bool) -> None:
    console.say(f"WARNING: {len(gone)} pinned packages for {what} have left the archive:")
    for line in gone:
        console.say(f"WARNING:   {line}")
    if strict:
        raise BootstrapError(
            "EAGLE3_STRICT refuses other versions: refresh the locks with "
            "`python3 tools/bootstrap/refresh.py`, or unset EAGLE3_STRICT"
        )
    console.say(
        "WARNING: the suite's current packages are taken instead, so this set-up is not "
        "reproducible; `python3 tools/bootstrap/refresh.py` renews the pins"
    )
