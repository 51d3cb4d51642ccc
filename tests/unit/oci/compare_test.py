"""What differs from the recorded image is named."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools.oci import compare
from tools.oci.contents import Contents, Entry, Layer, write_contents
from tools.oci.errors import run

FILE = Entry("usr/bin/tool", "file", 0o755, sha256="1" * 64, size=3)
LAYERS = [Contents(Layer("debian", "sha256:0", 1, "sha256:0"), (FILE,))]


def changed(**fields: Any) -> list[Contents]:
    return [replace(LAYERS[0], entries=(replace(FILE, **fields),))]


def test_the_same_image_has_no_differences() -> None:
    assert list(compare.differences(compare.folder_hashes(LAYERS), LAYERS)) == []


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    tree = compare.folder_hashes(LAYERS)
    compare.write_tree(tmp_path / "x.tree", tree)
    assert compare.read_tree(tmp_path / "x.tree") == tree


def test_layer_folder_and_files_are_named() -> None:
    for change in ({"sha256": "2" * 64}, {"mode": 0o644}, {"path": "usr/bin/other"}):
        layers = changed(**change)
        lines = list(compare.differences(compare.folder_hashes(LAYERS), layers))
        assert lines[0] == "layer debian: /usr/bin differs"
        assert layers[0].entries[0].path in lines[1]


def test_folders_that_came_and_went() -> None:
    lines = list(compare.differences(compare.folder_hashes(LAYERS), changed(path="etc/tool")))
    assert lines[0] == "layer debian: /etc is new"
    assert lines[-1] == "layer debian: /usr/bin is gone"


def test_two_builds_are_compared_file_by_file() -> None:
    assert list(compare.exact_differences(LAYERS, changed(sha256="2" * 64))) == [
        "layer debian: /usr/bin/tool differs"
    ]
    assert list(compare.exact_differences(LAYERS, LAYERS)) == []


@pytest.mark.parametrize(
    ("other", "code", "told"),
    [
        (LAYERS, 0, "both builds have the same files in the same layers\n"),
        (changed(mode=0o644), 1, "differ:\nlayer debian: /usr/bin/tool differs\n"),
    ],
    ids=["same", "different"],
)
def test_the_command_fails_where_two_builds_differ(
    other: list[Contents],
    code: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, (contents,) in {"ours": LAYERS, "other": other}.items():
        write_contents(tmp_path / name, contents.layer, contents.entries)
    words = ["--contents", str(tmp_path / "ours"), "--against", str(tmp_path / "other")]
    monkeypatch.setattr(sys, "argv", ["compare", *words])
    assert run(compare.main) == code
    captured = capsys.readouterr()
    assert (captured.out + captured.err).endswith(told)
