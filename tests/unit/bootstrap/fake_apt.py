"""Stands in for apt-get on a fake machine: fake_apt.py ARCHIVE ARGUMENT...

ARCHIVE/index.json lists the packages; files named offline, damaged, tampered and slow beside it
change how the archive behaves.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from urllib.parse import quote


def fail(*lines: str) -> None:
    print("\n".join(lines))
    sys.exit(100)


def main() -> None:
    archive = Path(sys.argv[1])
    words = [word for word in sys.argv[2:] if not word.startswith(("-o", "-q"))]
    index = {
        package["name"]: package for package in json.loads((archive / "index.json").read_text())
    }
    with (archive / "log").open("a") as log:
        print(" ".join(words), file=log)
    if words == ["update", "--print-uris"]:
        print("'https://example.com/apt/dists/stable-tools/InRelease' x 0")
        print("'https://example.org/debian/dists/bookworm/InRelease' x 0")
    elif (archive / "offline").exists():
        fail("Err:1 https://example.org trixie", "E: Failed to fetch InRelease  No route to host")
    elif words[0] == "--simulate":
        for package in index.values():
            print(f"Inst {package['name']} ({package['version']} Debian:testing [amd64])")
    elif (archive / "damaged").exists() and words[0] == "download":
        fail("E: The package cache is damaged")
    elif words[0] == "download":
        specs = [word for word in words[1:] if not word.startswith("-")]
        download(archive, index, specs, only_print="--print-uris" in words)


def download(archive: Path, index: dict, specs: list[str], *, only_print: bool) -> None:
    if not specs:
        fail("E: Handler silently failed")
    gone = []
    for spec in specs:
        name, _, version = spec.partition("=")
        package = index.get(name)
        if package is None:
            gone.append(f"E: Unable to locate package {name}")
        elif version and version != package["version"]:
            gone.append(f"E: Version '{version}' for '{name}' was not found")
        elif only_print:
            file = f"{name}_{quote(package['version'], safe='+~')}_amd64.deb"
            size, sha256 = package["size"], package["sha256"]
            print(f"'https://example.org/{file}' {file} {size} SHA256:{sha256}")
        else:
            fetch(archive, package)
    if gone:
        fail(*gone)


def fetch(archive: Path, package: dict) -> None:
    target = Path(f"{package['name']}_{quote(package['version'], safe='+~')}_amd64.deb")
    if (archive / "slow").exists():
        target.write_bytes(b"half")
        time.sleep(600)
    shutil.copyfile(archive / f"{package['name']}.deb", target)
    if (archive / "tampered").exists():
        target.write_bytes(b"not what the index says")


main()
