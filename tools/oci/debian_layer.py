"""Makes a layer of Debian packages, unpacked without dpkg, root or maintainer scripts.

What the scripts would have made is made here: the merged /usr, the certificate bundle. The
control file of each package stays in var/lib/dpkg/status.d, where scanners look.
"""

import argparse
import fnmatch
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools.oci.contents import Entry, read_contents, tree
from tools.oci.deb import Deb
from tools.oci.dependencies import require_dependencies
from tools.oci.errors import ImageError, run
from tools.oci.layer import Member, file_member, folder_member, link_member, write_layer

_MERGED = ("bin", "lib", "lib64", "sbin")
_CERTIFICATES = "usr/share/ca-certificates/mozilla/"
_STATUS = "var/lib/dpkg/status.d/"
_BUNDLE = "etc/ssl/certs/ca-certificates.crt"
# Permission bits that stay: neither setuid, setgid nor sticky.
_PERMISSIONS = 0o755


def members(debs: Iterable[Path], leave_out: Iterable[str]) -> Iterator[Member]:
    """All that the packages install, less the paths that match a pattern of leave_out."""
    patterns = tuple(leave_out)
    certificates: dict[str, bytes] = {}
    for file in debs:
        deb = Deb(file)
        control = deb.control()
        yield file_member(f"{_STATUS}{deb.name}", control)
        yield file_member(f"{_STATUS}{deb.name}.md5sums", deb.md5sums())
        with deb.files() as archive:
            for item in archive:
                path = _merged(item.name)
                if not path or any(fnmatch.fnmatch(path, pattern) for pattern in patterns):
                    continue
                member = _member(archive, item, path)
                if path.startswith(_CERTIFICATES) and isinstance(member.source, bytes):
                    certificates[path] = member.source
                if member.entry.kind != "folder":
                    yield member
    if certificates:
        yield file_member(_BUNDLE, b"".join(certificates[path] for path in sorted(certificates)))


def root_members() -> Iterator[Member]:
    """The folders and accounts that every root needs."""
    for name in _MERGED:
        yield link_member(name, f"usr/{name}")
    yield folder_member("tmp", 0o1777)
    yield folder_member("var/tmp", 0o1777)
    yield folder_member("root", 0o700)
    yield folder_member("home/nonroot", 0o700, owner=65532)
    for name in ("dev", "etc", "mnt", "proc", "run", "sys", "usr/sbin", "usr/local/bin"):
        yield folder_member(name)
    for name, text in _ACCOUNTS.items():
        yield file_member(f"etc/{name}", text.encode())


_ACCOUNTS = {
    "passwd": (
        "root:x:0:0:root:/root:/usr/sbin/nologin\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        "nonroot:x:65532:65532:nonroot:/home/nonroot:/usr/sbin/nologin\n"
    ),
    "group": "root:x:0:\ntty:x:5:\nnogroup:x:65534:\nnonroot:x:65532:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def _merged(name: str) -> str:
    """The path on a merged /usr: lib/x is usr/lib/x."""
    path = name.removeprefix("./").strip("/")
    if path in ("", *_MERGED):
        return ""
    return f"usr/{path}" if path.split("/")[0] in _MERGED else path


def _member(archive: tarfile.TarFile, item: tarfile.TarInfo, path: str) -> Member:
    if item.isdir():
        return folder_member(path)
    if item.issym():
        return link_member(path, item.linkname)
    if item.islnk():
        # A second name of one file becomes a file of its own: readers need no order then.
        item = archive.getmember(item.linkname)
    stream = archive.extractfile(item)
    if stream is None:
        raise ImageError(f"/{path} is neither a file, a link nor a folder")
    return Member(Entry(path, "file", item.mode & _PERMISSIONS), stream.read())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--blob", type=Path, required=True)
    parser.add_argument("--contents", type=Path, required=True)
    parser.add_argument("--lower", type=Path, action="append", default=[])
    parser.add_argument("--leave-out", action="append", default=[])
    parser.add_argument("--without", action="append", default=[], help="no such package is needed")
    parser.add_argument("debs", type=Path, nargs="+")
    options = parser.parse_args()
    lower = tree(map(read_contents, options.lower))
    below = {path.removeprefix(_STATUS) for path in lower if path.startswith(_STATUS)}
    require_dependencies(map(Deb, options.debs), below, options.without)
    wanted = list(members(options.debs, options.leave_out))
    if not lower:
        wanted += root_members()
    write_layer(options.name, wanted, options.blob, options.contents, lower=lower)


if __name__ == "__main__":
    sys.exit(run(main))
