"""Patches apply exactly or fail, naming file and hunk."""

from pathlib import Path

import pytest

from tools.python.environment.patching import PatchError, apply_patch, read_patch

_SOURCE = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"
_PATCH = """\
Symptom: two is wrong.

diff --git a/pkg/module.py b/pkg/module.py
index 1..2 100644
--- a/pkg/module.py
+++ b/pkg/module.py
@@ -1,4 +1,4 @@
 one
-two
+TWO
 three
 four
@@ -6,2 +6,3 @@ def context():
 six
+six and a half
 seven
"""
_DIFF = _PATCH.partition("\n\n")[2]
_CREATES = """\
--- /dev/null
+++ b/pkg/fresh.py
@@ -0,0 +1,2 @@
+alpha
+beta
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site" / "pkg").mkdir(parents=True)
    (tmp_path / "site" / "pkg" / "module.py").write_text(_SOURCE)
    return tmp_path / "site"


def _patch(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "01-name.patch"
    file.write_text(text, encoding="utf-8", errors="surrogateescape")
    return file


def test_applies_every_hunk(tmp_path: Path, site: Path) -> None:
    changed = apply_patch(read_patch(_patch(tmp_path, _PATCH)), site)
    assert changed == ["pkg/module.py"]
    expected = "one\nTWO\nthree\nfour\nfive\nsix\nsix and a half\nseven\n"
    assert (site / "pkg/module.py").read_text() == expected


def test_keeps_the_header(tmp_path: Path) -> None:
    assert read_patch(_patch(tmp_path, _PATCH)).header == "Symptom: two is wrong.\n\n"


def test_creates_a_file(tmp_path: Path, site: Path) -> None:
    apply_patch(read_patch(_patch(tmp_path, _CREATES)), site)
    assert (site / "pkg/fresh.py").read_text() == "alpha\nbeta\n"


def test_writes_a_new_file_and_leaves_a_hard_link_alone(tmp_path: Path, site: Path) -> None:
    cached = tmp_path / "cached.py"
    cached.hardlink_to(site / "pkg/module.py")
    apply_patch(read_patch(_patch(tmp_path, _PATCH)), site)
    assert cached.read_text() == _SOURCE


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        pytest.param(
            "zero\n" + _SOURCE, r"hunk 1 .*line 1 should be 'one' and is 'zero'", id="offset"
        ),
        pytest.param(
            _SOURCE.replace("three", "3"), r"line 3 should be 'three' and is '3'", id="fuzz"
        ),
        pytest.param(_SOURCE.replace("seven\n", ""), r"hunk 2 .*the end of the file", id="short"),
    ],
)
def test_refuses_offset_and_fuzz(tmp_path: Path, site: Path, source: str, complaint: str) -> None:
    (site / "pkg/module.py").write_text(source)
    with pytest.raises(PatchError, match=rf"01-name.patch: pkg/module.py: .*{complaint}"):
        apply_patch(read_patch(_patch(tmp_path, _PATCH)), site)
    assert (site / "pkg/module.py").read_text() == source


def test_refuses_to_apply_twice(tmp_path: Path, site: Path) -> None:
    patch = read_patch(_patch(tmp_path, _PATCH))
    apply_patch(patch, site)
    with pytest.raises(PatchError, match="does not apply"):
        apply_patch(patch, site)


def test_changes_nothing_when_one_file_of_two_fails(tmp_path: Path, site: Path) -> None:
    second = _DIFF.replace("pkg/module.py", "pkg/missing.py")
    with pytest.raises(PatchError, match=r"pkg/missing\.py is not in the installed packages"):
        apply_patch(read_patch(_patch(tmp_path, _PATCH + second)), site)
    assert (site / "pkg/module.py").read_text() == _SOURCE


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("only prose\n", "holds no unified diff", id="prose"),
        pytest.param(_PATCH.replace("-6,2 +6,3", "-6,3 +6,4"), "ends before", id="counts"),
        pytest.param(
            _PATCH.replace("b/pkg", "b/../pkg").replace("a/pkg", "a/../pkg"), "leaves", id="up"
        ),
        pytest.param(
            _PATCH.replace("--- a/pkg/module.py", "--- a/pkg/old.py"), "renames", id="rename"
        ),
        pytest.param(_PATCH + "+more\n", r"line 17 is in no hunk: '\+more'", id="more"),
        pytest.param(_PATCH.replace("@@ -6,2", "@ -6,2"), "in no hunk: '@ -6,2", id="header"),
        pytest.param(_PATCH + _DIFF, r"changes pkg/module\.py twice", id="twice"),
        pytest.param("Symptom: caf\udce9\n" + _PATCH, "is not UTF-8", id="latin"),
        pytest.param(_PATCH + "\\ No newline at end of file\n", "last newline", id="newline"),
    ],
)
def test_refuses_what_it_cannot_read(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(PatchError, match=complaint):
        read_patch(_patch(tmp_path, text))
