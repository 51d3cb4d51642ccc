"""An engine is given the image's layout, whole, and its refusal is told."""

import json
import sys
from pathlib import Path

import pytest

from tools.oci import load
from tools.oci.errors import run
from tools.oci.layout import Layout

_UNPACKS = """exec {python} -c '
import sys, tarfile
tarfile.open(fileobj=sys.stdin.buffer, mode="r|").extractall("{folder}", filter="data")'"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A podman, still to be written, that is the only program on PATH beside the system's."""
    layout = Layout(tmp_path / "layout")
    layout.finish([layout.add_bytes(b"x" * 1_000_000, "application/octet-stream")])
    (tmp_path / "digest").write_text("sha256:0123\n")
    # Bazel gives a layout of links.
    (tmp_path / "linked").symlink_to(tmp_path / "layout")
    program = tmp_path / "bin/podman"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    arguments = [f"--layout={tmp_path}/linked", f"--digest={tmp_path}/digest", "podman"]
    monkeypatch.setattr(sys, "argv", ["load", *arguments])
    return program


def write(program: Path, text: str) -> None:
    program.write_text(f"#!/bin/bash\n{text}\n")
    program.chmod(0o755)


def test_the_engine_gets_the_layout(
    engine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = tmp_path / "loaded"
    write(engine, _UNPACKS.format(python=sys.executable, folder=loaded))
    assert run(load.main) == 0
    assert capsys.readouterr().out == "sha256:0123\n"
    (manifest,) = json.loads((loaded / "index.json").read_bytes())["manifests"]
    blob = loaded / "blobs" / manifest["digest"].replace(":", "/")
    assert blob.stat().st_size == manifest["size"]


def test_an_engine_that_gives_up_is_named(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It reads nothing, so that writing to it breaks."""
    write(engine, "exit 125")
    assert run(load.main) == 1
    assert capsys.readouterr().err == "ERROR: podman load ended with 125; see above\n"


def test_without_an_engine_it_says_what_to_do(
    engine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(engine.parent))
    assert run(load.main) == 1
    assert "no podman is here" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", sys.argv[:-1])
    assert run(load.main) == 1
    assert "neither podman nor docker is here" in capsys.readouterr().err
