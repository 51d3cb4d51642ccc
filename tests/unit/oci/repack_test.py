"""Layers packed by zstd, without what is not needed, and unpacked by the bundle's script."""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import psutil
import pytest
import zstandard
from runfiles import Runfiles

from tools.oci import bundle
from tools.oci.errors import ImageError
from tools.oci.layer import Member, file_member, link_member, write_layer
from tools.oci.layout import CONFIG, MANIFEST, Layout
from tools.oci.repack import Repacker

PART_BYTES = 4000
# In the place of the image's loader: starts Python without it.
LOADER = f'#!/bin/sh\nshift 3\nexec "{sys.executable}" "$@"\n'
LARGE = b"".join(hashlib.sha256(bytes([number])).digest() for number in range(250))
LAYERS = [
    [
        file_member(
            "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", LOADER.encode(), executable=True
        )
    ],
    [
        file_member("opt/large", LARGE),
        file_member("opt/kernels_fa2.so", bytes(5000)),
        link_member("opt/link", "large"),
    ],
    [file_member("srv/small", b"small")],
]


def install_script() -> str:
    runfiles = Runfiles.Create()
    found = runfiles.Rlocation("eagle3_training/docker/install.sh") if runfiles else None
    assert found
    return Path(found).read_text()


def make_layout(folder: Path, layers: list[list[Member]]) -> Path:
    layout = Layout(folder / "layout")
    described = []
    for number, members in enumerate(layers):
        blob = folder / f"{number}.tar.gz"
        layer = write_layer(str(number), members, blob, folder / f"{number}.contents")
        layout.add_file(blob, layer.digest)
        described.append({"digest": layer.digest, "size": layer.size})
    config = layout.add_json({"config": {"Env": ["A=1"]}}, CONFIG)
    layout.finish([layout.add_json({"config": config, "layers": described}, MANIFEST)])
    return folder / "layout"


def write(tmp_path: Path, repacker: Repacker) -> Path:
    folder = tmp_path / "bundle"
    layout = make_layout(tmp_path, LAYERS)
    bundle.write_bundle(layout, install_script(), folder, PART_BYTES, repacker)
    package = Path(zstandard.__file__).parent
    with tarfile.open(folder / "zstandard.tar.gz", "w:gz") as archive:
        archive.add(package, "zstandard")
    return folder


def test_what_is_left_is_unpacked_as_it_was(tmp_path: Path) -> None:
    repacker = Repacker(["opt/*_fa2.*"], threads=1)
    folder = write(tmp_path, repacker)
    repacker.check()
    assert repacker.left_out_bytes == 5000
    parts = sorted(path.name for path in folder.glob("layer-*"))
    assert parts[:3] == ["layer-00.part-000", "layer-01.zst.part-000", "layer-01.zst.part-001"]
    assert parts[-1] == "layer-02.part-000"
    done = subprocess.run(
        ["sh", folder / "install.sh", tmp_path / "root"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    root = tmp_path / "root/root"
    assert (root / "opt/large").read_bytes() == LARGE
    assert (root / "opt/link").readlink() == Path("large")
    assert (root / "srv/small").read_text() == "small"
    assert not (root / "opt/kernels_fa2.so").exists()
    assert not (tmp_path / "root/zstandard").exists()


def test_a_pattern_that_matches_nothing_is_told(tmp_path: Path) -> None:
    repacker = Repacker(["opt/*_fa2.*", "opt/*_fa4.*"], threads=1)
    write(tmp_path, repacker)
    with pytest.raises(ImageError, match=r"matches opt/\*_fa4"):
        repacker.check()
    assert repacker.left_out_bytes == 5000


def test_a_layer_that_cannot_be_unpacked_leaves_no_root(tmp_path: Path) -> None:
    folder = write(tmp_path, Repacker([], threads=1))
    part = folder / "layer-01.zst.part-001"
    part.write_bytes(part.read_bytes()[:-100])
    sums = folder / "SHA256SUMS"
    lines = sums.read_text().splitlines()
    digest = hashlib.sha256(part.read_bytes()).hexdigest()
    sums.write_text(
        "".join(f"{digest}  {part.name}\n" if part.name in line else f"{line}\n" for line in lines)
    )
    done = subprocess.run(
        ["sh", folder / "install.sh", tmp_path / "root"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "error: a layer could not be unpacked" in done.stderr
    assert not (tmp_path / "root").exists()


def test_an_interrupt_ends_the_unpackers_and_leaves_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path, Repacker([], threads=1))
    # Of a run before that was killed.
    (tmp_path / "root.partial/zstandard").mkdir(parents=True)
    note = tmp_path / "pid"
    # The layer that is unpacked in the background takes its time.
    tar = tmp_path / "commands/tar"
    tar.parent.mkdir()
    tar.write_text(
        "#!/bin/sh\n"
        'if [ "$2" = --no-same-owner ] && [ -e "$4/../zstandard" ]; then\n'
        f'  echo $$ > "{note}.new" && mv "{note}.new" "{note}"\n'
        "  exec sleep 600\n"
        "fi\n"
        f'exec {shutil.which("tar")} "$@"\n'
    )
    tar.chmod(0o755)
    process = subprocess.Popen(
        ["sh", folder / "install.sh", tmp_path / "root"],
        env=os.environ | {"PATH": f"{tar.parent}:{os.environ['PATH']}"},
        start_new_session=True,
    )
    try:
        while not note.exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.terminate()
        assert process.wait(200) == 130
        assert not psutil.pid_exists(int(note.read_text()))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert not (tmp_path / "root").exists()
    assert not (tmp_path / "root.partial").exists()
