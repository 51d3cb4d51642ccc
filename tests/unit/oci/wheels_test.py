"""Wheels go into layers by their RECORDs, and into no image with other bytes."""

import json
import marshal
from pathlib import Path

import pytest

from tests.unit.oci.packages import write_site
from tools.oci import selection, wheels
from tools.oci.errors import ImageError
from tools.oci.layer import write_layer

TWO = {"alpha": {"alpha/__init__.py": "A = 1\n", "alpha/x.h": ""}, "beta": {"beta.py": "B = 2\n"}}


def test_distributions_go_to_the_first_group_that_names_them(tmp_path: Path) -> None:
    files = selection.installed(write_site(tmp_path, TWO), None)
    grouped = selection.group(files, {"one": ["al*"], "rest": ["*"]})
    assert {file.distribution for file in grouped["one"]} == {"alpha"}
    assert {file.distribution for file in grouped["rest"]} == {"beta"}


def test_patterns_leave_distributions_and_paths_out(tmp_path: Path) -> None:
    files = selection.installed(write_site(tmp_path, TWO), None)
    kept = selection.select(files, selection.Selection(("beta",), ("*.h",)))
    assert [file.path for file in kept if "dist-info" not in file.path] == ["alpha/__init__.py"]


def test_a_pattern_that_leaves_nothing_out_is_refused(tmp_path: Path) -> None:
    files = selection.installed(write_site(tmp_path, TWO), None)
    with pytest.raises(ImageError, match="nothing matches the patterns gamma"):
        selection.select(files, selection.Selection(("gamma",), ()))


def test_a_file_that_no_record_lists_is_refused(tmp_path: Path) -> None:
    site = write_site(tmp_path, TWO)
    (site / "stranger.py").touch()
    with pytest.raises(ImageError, match=r"no RECORD lists stranger\.py"):
        selection.installed(site, None)


def test_a_stand_in_that_is_not_the_generated_one_is_refused(tmp_path: Path) -> None:
    site = write_site(tmp_path, TWO)
    stubs = tmp_path / "stubs.json"
    stubs.write_text(json.dumps({"x.so": {"soname": "x.so", "version": "", "symbols": ["f"]}}))
    (site / "nvidia").mkdir()
    (site / "nvidia/x.so").write_bytes(b"something else")
    with pytest.raises(ImageError, match=r"/usr/local/.*/nvidia/x\.so has SHA-256"):
        layer(selection.installed(site, stubs), site, tmp_path)


def test_a_flipped_byte_is_refused(tmp_path: Path) -> None:
    site = write_site(tmp_path, TWO)
    files = selection.installed(site, None)
    (site / "alpha/x.h").write_text("#define X\n")
    with pytest.raises(ImageError, match=r"alpha/x\.h has SHA-256 .* was altered"):
        layer(files, site, tmp_path)


def test_byte_code_of_another_source_is_refused(tmp_path: Path) -> None:
    site = write_site(tmp_path, TWO)
    cache = site / "__pycache__/beta.cpython-313.pyc"
    data = bytearray(cache.read_bytes())
    data[8] ^= 1
    cache.write_bytes(data)
    with pytest.raises(ImageError, match=r"is not the byte code of beta\.py"):
        wheels.members(selection.installed(site, None), site, {})


def test_byte_code_does_not_depend_on_what_else_was_compiled(tmp_path: Path) -> None:
    site = write_site(tmp_path, TWO)
    files = selection.installed(site, None)
    cache = site / "__pycache__/beta.cpython-313.pyc"
    before = layer(files, site, tmp_path)
    data = cache.read_bytes()
    # What a process writes that holds further references to the same objects.
    code = marshal.loads(data[16:])
    other = marshal.dumps([code, code], 4)[5:]
    cache.write_bytes(data[:16] + other)
    assert cache.read_bytes() != data
    assert layer(files, site, tmp_path) == before


def test_a_record_lists_what_is_in_the_image(tmp_path: Path) -> None:
    site = write_site(tmp_path, TWO)
    kept = selection.select(selection.installed(site, None), selection.Selection((), ("*.h",)))
    text = {m.entry.path: m.source for m in wheels.members(kept, site, {})}[
        f"{wheels.SITE}/alpha-1.dist-info/RECORD"
    ]
    assert isinstance(text, bytes)
    assert b"alpha/__init__.py,sha256=" in text
    assert b"alpha/x.h" not in text


def test_a_link_takes_the_place_of_a_file(tmp_path: Path) -> None:
    site = write_site(tmp_path, {"certs": {"certs/ca.pem": "altered by somebody"}})
    files = selection.installed(site, None)
    (site / "certs/ca.pem").write_text("and again")
    members = wheels.members(files, site, {"certs/ca.pem": "/etc/ca.pem"})
    assert [m.entry.target for m in members if m.entry.path.endswith("ca.pem")] == ["/etc/ca.pem"]


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    files = selection.installed(write_site(tmp_path, TWO), None)
    wheels.write_plan(tmp_path / "plan", files)
    assert wheels.read_plan(tmp_path / "plan") == files


def layer(files: list[wheels.Planned], site: Path, folder: Path) -> str:
    members = wheels.members(files, site, {})
    return write_layer("x", members, folder / "x.tar.gz", folder / "x.contents").digest
