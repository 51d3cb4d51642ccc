"""A layer's bytes depend on paths and contents alone."""

import os
import tarfile
from pathlib import Path

import pytest

from tools.oci.contents import Entry, read_contents, tree
from tools.oci.errors import ImageError, run
from tools.oci.layer import Member, file_member, link_member, write_layer


def write(folder: Path, members: list[Member], **options: dict[str, Entry]) -> tuple[Path, Path]:
    folder.mkdir()
    blob, contents = folder / "x.tar.gz", folder / "x.contents"
    write_layer("x", members, blob, contents, **options)
    return blob, contents


def test_order_time_and_place_do_not_matter(tmp_path: Path) -> None:
    blobs = []
    for number in (1, 2):
        source = tmp_path / f"source{number}"
        source.write_text("hello")
        os.utime(source, (number, number))
        source.chmod(0o600 if number == 1 else 0o664)
        members = [file_member("a/b/c", source), link_member("a/l", "b/c"), file_member("z", b"")]
        blob, _ = write(tmp_path / str(number), members[::-1] if number == 1 else members)
        blobs.append(blob.read_bytes())
    assert blobs[0] == blobs[1]


def test_owners_modes_and_folders_are_fixed(tmp_path: Path) -> None:
    blob, contents = write(tmp_path / "x", [file_member("a/tool", b"x", executable=True)])
    with tarfile.open(blob) as archive:
        found = {item.name: (item.mode, item.uid, item.gid, item.mtime) for item in archive}
    assert found == {"a": (0o755, 0, 0, 0), "a/tool": (0o755, 0, 0, 0)}
    assert [entry.path for entry in read_contents(contents).entries] == ["a", "a/tool"]


def test_a_path_longer_than_a_tar_header_has_room_for(tmp_path: Path) -> None:
    path = "/".join(["a" * 90] * 4)
    blob, _ = write(tmp_path / "x", [file_member(path, b"x")])
    with tarfile.open(blob) as archive:
        assert path in archive.getnames()


def test_contents_know_digests_and_sizes(tmp_path: Path) -> None:
    blob, contents = write(tmp_path / "x", [file_member("a", b"hello")])
    read = read_contents(contents)
    assert read.layer.size == blob.stat().st_size
    assert read.unpacked_size == 5
    assert read.entries[0].sha256.startswith("2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e7304")


def test_what_a_lower_layer_holds_is_left_out(tmp_path: Path) -> None:
    members = [file_member("usr/libc.so", b"libc"), link_member("usr/l", "libc.so")]
    _, below = write(tmp_path / "below", members)
    lower = tree([read_contents(below)])
    _, contents = write(tmp_path / "x", [*members, file_member("usr/new", b"")], lower=lower)
    assert [entry.path for entry in read_contents(contents).entries] == ["usr/new"]


def test_a_file_that_differs_from_the_lower_layer_is_refused(tmp_path: Path) -> None:
    _, below = write(tmp_path / "below", [file_member("usr/libc.so", b"libc")])
    with pytest.raises(ImageError, match=r"/usr/libc\.so differs"):
        write(
            tmp_path / "x",
            [file_member("usr/libc.so", b"other")],
            lower=tree([read_contents(below)]),
        )


def test_one_path_with_two_contents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="/a comes twice"):
        write(tmp_path / "x", [file_member("a", b"1"), file_member("a", b"2")])


def test_bytes_that_are_not_the_announced_ones_are_refused(tmp_path: Path) -> None:
    member = Member(Entry("a", "file", 0o644, sha256="0" * 64), b"flipped")
    with pytest.raises(ImageError, match=r"/a has SHA-256 .* RECORD says 0000"):
        write(tmp_path / "x", [member])


def test_a_full_disk_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        write_layer("x", [file_member("a", b"x")], Path("/dev/full"), tmp_path / "contents")

    assert run(command) == 1
    assert capsys.readouterr().err == (
        "ERROR: the disk is full: free some space, and do this again\n"
    )
