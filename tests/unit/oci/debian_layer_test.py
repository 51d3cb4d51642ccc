"""Debian packages become a root without dpkg."""

from pathlib import Path

import pytest

from tests.unit.oci.packages import write_deb
from tools.oci import debian_layer
from tools.oci.deb import Deb
from tools.oci.errors import ImageError

CERTIFICATES = "usr/share/ca-certificates/mozilla"


def paths(*debs: Path, leave_out: tuple[str, ...] = ()) -> dict[str, int]:
    return {m.entry.path: m.entry.mode for m in debian_layer.members(debs, leave_out)}


def test_files_land_on_a_merged_usr(tmp_path: Path) -> None:
    deb = write_deb(tmp_path, "tool", {"bin/tool": b"x", "lib/x/l.so": b"", "etc/tool": b""}, 0o755)
    assert paths(deb).keys() == {
        "usr/bin/tool",
        "usr/lib/x/l.so",
        "etc/tool",
        "var/lib/dpkg/status.d/tool",
        "var/lib/dpkg/status.d/tool.md5sums",
    }


def test_setuid_goes(tmp_path: Path) -> None:
    assert paths(write_deb(tmp_path, "su", {"usr/bin/su": b""}, 0o4755))["usr/bin/su"] == 0o755


def test_patterns_leave_paths_out(tmp_path: Path) -> None:
    deb = write_deb(tmp_path, "tool", {"usr/bin/tool": b"", "usr/share/man/man1/tool.1": b""})
    assert "usr/share/man/man1/tool.1" not in paths(deb, leave_out=("usr/share/man/*",))


def test_certificates_become_one_bundle_in_the_order_of_their_names(tmp_path: Path) -> None:
    deb = write_deb(
        tmp_path, "ca", {f"{CERTIFICATES}/b.crt": b"B\n", f"{CERTIFICATES}/a.crt": b"A\n"}
    )
    members = {m.entry.path: m.source for m in debian_layer.members([deb], ())}
    assert members["etc/ssl/certs/ca-certificates.crt"] == b"A\nB\n"


def test_control_fields_are_read(tmp_path: Path) -> None:
    deb = Deb(write_deb(tmp_path, "tool", {"usr/bin/tool": b""}))
    assert (deb.name, deb.version, deb.fields["Architecture"]) == ("tool", "1-1", "amd64")


def test_what_is_no_package_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.deb").write_bytes(b"<html>not found</html>")
    with pytest.raises(ImageError, match="is not a Debian package"):
        Deb(tmp_path / "x.deb")
