"""Makes the layer of CPython: the toolchain's own bytes, at home in /usr.

The toolchain's prefix/usr becomes the image's /usr. Its C library and most of its libraries lie
in the Debian layer already, byte for byte, and are left out here; one that differs is refused.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.oci.contents import read_contents, tree
from tools.oci.deb import Deb
from tools.oci.errors import run
from tools.oci.layer import Member, file_member, link_member, write_layer

# The toolchain's launcher seeks a loader beside itself; in the image the loader is at home.
_LAUNCHERS = {"usr/bin/python3", "usr/bin/python"}


def members(usr: Path) -> Iterator[Member]:
    """The files and links of the toolchain's prefix/usr."""
    for folder, folders, names in os.walk(usr):
        for name in names + [name for name in folders if Path(folder, name).is_symlink()]:
            file = Path(folder, name)
            path = f"usr/{file.relative_to(usr)}"
            if path in _LAUNCHERS:
                yield link_member(path, "python3.13")
            elif file.is_symlink():
                yield link_member(path, os.readlink(file))
            else:
                yield file_member(path, file, executable=os.access(file, os.X_OK))


def status_members(debs: list[Path]) -> Iterator[Member]:
    """The metadata of the packages that the toolchain is made of, for scanners."""
    for deb in map(Deb, debs):
        yield file_member(f"var/lib/dpkg/status.d/{deb.name}", deb.control())
        yield file_member(f"var/lib/dpkg/status.d/{deb.name}.md5sums", deb.md5sums())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--usr", type=Path, required=True, help="the toolchain's prefix/usr")
    parser.add_argument("--blob", type=Path, required=True)
    parser.add_argument("--contents", type=Path, required=True)
    parser.add_argument("--lower", type=Path, action="append", default=[])
    parser.add_argument("debs", type=Path, nargs="*")
    options = parser.parse_args()
    write_layer(
        "python",
        [*members(options.usr), *status_members(options.debs)],
        options.blob,
        options.contents,
        lower=tree(map(read_contents, options.lower)),
    )


if __name__ == "__main__":
    sys.exit(run(main))
