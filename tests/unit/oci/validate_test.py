"""What validation refuses."""

from pathlib import Path
from typing import Any

import pytest

from tools.oci import validate
from tools.oci.check_layer import check_blob
from tools.oci.contents import Contents, Entry, Layer
from tools.oci.errors import ImageError
from tools.oci.layer import file_member, write_layer

GOOD: dict[str, Any] = {"User": "65532:65532", "Env": ["PATH=/usr/bin"], "Cmd": ["extract"]}
COMMAND = Entry("usr/local/bin/extract", "file", 0o755)
ENOUGH = (*(Entry(p, "folder", 0o755) for p in ("usr", "usr/local", "usr/local/bin")), COMMAND)


def problems(*entries: Entry, size: int = 1, **settings: Any) -> list[str]:
    layer = Contents(Layer("x", "sha256:0", size, "sha256:0"), (*ENOUGH, *entries))
    return list(validate.problems({"config": GOOD | settings}, [layer]))


def test_a_good_image_passes() -> None:
    links = (Entry("lib", "link", 0o777, target="usr/lib"), Entry("usr/lib", "folder", 0o755))
    assert problems(*links, Entry("tmp", "folder", 0o1777)) == []


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Entry("usr/bin/su", "file", 0o4755), "setuid"),
        (Entry("etc/x", "file", 0o666), "written by everybody"),
        (Entry("etc/x", "file", 0o644, owner=1000), "belongs to user 1000"),
        (Entry("usr/lib/libcuda.so.1", "file", 0o644), "host's driver"),
        (Entry("etc/ssl/private/server.key", "file", 0o600), "looks like a secret"),
        (Entry("root/.bashrc", "file", 0o644), "must be empty"),
        (Entry("usr/a.so", "link", 0o777, target="gone.so"), "which is not in the image"),
        (Entry("a", "link", 0o777, target="a"), "which is not in the image"),
    ],
)
def test_an_entry_that_must_not_be(entry: Entry, words: str) -> None:
    assert [words in problem for problem in problems(entry)] == [True]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"User": "0"}, "runs as '0'"),
        ({"Env": ["LD_LIBRARY_PATH=/x"]}, "LD_LIBRARY_PATH"),
        ({"Entrypoint": ["sh"]}, "entry point"),
        ({"Cmd": ["gone"]}, "default command gone"),
    ],
)
def test_a_setting_that_must_not_be(setting: dict[str, Any], words: str) -> None:
    assert [words in problem for problem in problems(**setting)] == [True]


def test_a_layer_too_large_for_registries() -> None:
    assert "split it" in problems(size=validate.MAX_LAYER_BYTES + 1)[0]


def test_one_path_in_two_layers() -> None:
    layers = [
        Contents(Layer(name, "sha256:0", 1, "sha256:0"), ENOUGH) for name in ("lower", "upper")
    ]
    assert list(validate.problems({"config": GOOD}, layers)) == [
        "/usr/local/bin/extract is in lower and in upper"
    ]


def test_a_damaged_blob_is_refused(tmp_path: Path) -> None:
    blob = tmp_path / "x.tar.gz"
    layer = write_layer("x", [file_member("a", b"x" * 100)], blob, tmp_path / "x.contents")
    check_blob(blob, layer.digest, layer.size, layer.diff_id)
    with blob.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")
    with pytest.raises(ImageError, match="is damaged"):
        check_blob(blob, layer.digest, layer.size, layer.diff_id)
