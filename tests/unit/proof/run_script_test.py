"""run.sh unpacks a bundle, lays the code over it, and runs the image's Python where it lies."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.contract.runfile import runfile
from tools.oci import bundle
from tools.oci.layer import file_member, write_layer
from tools.oci.layout import CONFIG, MANIFEST, Layout

WORKSPACE = "opt/eagle3/eagle3_training"
# In the place of the image's loader: starts Python without it.
LOADER = f'#!/bin/sh\nshift 3\nexec "{sys.executable}" "$@"\n'
ENVIRONMENT = ["RUNFILES_DIR=/opt/eagle3", "SSL_CERT_FILE=/etc/ssl/certs.pem", "PATH=/usr/bin"]
PROOF = """
import os, pathlib, sys
results = pathlib.Path(os.environ["EAGLE3_RESULTS"])
(results / "report.txt").write_text(" ".join(sys.argv[1:]))
(results / "groups").mkdir()
(results / "groups/preflight.log").write_text("said")
print(os.environ["RUNFILES_DIR"])
sys.exit(5)
"""


def write_code(folder: Path, files: dict[str, str]) -> None:
    with tarfile.open(folder / "code.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            header = tarfile.TarInfo(name)
            header.size = len(text.encode())
            archive.addfile(header, io.BytesIO(text.encode()))
    digest = hashlib.sha256((folder / "code.tar.gz").read_bytes()).hexdigest()
    (folder / "code.tar.gz.sha256").write_text(f"{digest}  code.tar.gz\n")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder with a small bundle in it, as it was sent."""
    layout = Layout(tmp_path / "layout")
    members = [
        file_member(
            "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", LOADER.encode(), executable=True
        ),
        file_member("usr/bin/python3.13", b"", executable=True),
        file_member(f"{WORKSPACE}/tests/removed_test.py", b""),
        file_member(f"{WORKSPACE}/third_party/models/smollm2/config.json", b"{}"),
    ]
    blob = tmp_path / "layer.tar.gz"
    layer = write_layer("all", members, blob, tmp_path / "contents")
    layout.add_file(blob, layer.digest)
    config = layout.add_json({"config": {"Env": ENVIRONMENT}}, CONFIG)
    layers = [{"digest": layer.digest, "size": layer.size}]
    layout.finish([layout.add_json({"config": config, "layers": layers}, MANIFEST)])
    folder = tmp_path / "sent"
    text = runfile("docker/install.sh").read_text()
    bundle.write_bundle(tmp_path / "layout", text, folder, 1000)
    (folder / "run.sh").write_text(runfile("tests/gpu/run.sh").read_text())
    write_code(folder, {"tests/__init__.py": "", "tests/gpu/__init__.py": "", "COMMIT": "abc"})
    return folder


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", folder / "run.sh", *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"EAGLE3_IN_PLACE": "1"} | environment,
    )


def test_the_code_takes_the_place_of_what_was_there_and_the_models_stay(machine: Path) -> None:
    done = run(machine, "unpack")
    assert done.returncode == 0, done.stderr
    assert "in place, as EAGLE3_IN_PLACE asks" in done.stderr
    workspace = machine / "image/root" / WORKSPACE
    assert (workspace / "COMMIT").read_text() == "abc"
    assert not (workspace / "tests/removed_test.py").exists()
    assert (workspace / "third_party/models/smollm2/config.json").exists()
    write_code(machine, {"COMMIT": "def"})
    assert run(machine, "unpack").returncode == 0
    assert (workspace / "COMMIT").read_text() == "def"
    assert not (workspace / "tests").exists()


def test_damaged_code_is_refused(machine: Path) -> None:
    (machine / "code.tar.gz").write_bytes(b"no archive")
    done = run(machine, "unpack")
    assert done.returncode == 1
    assert "error: code.tar.gz is damaged" in done.stderr


def test_nothing_runs_before_it_is_unpacked(machine: Path) -> None:
    done = run(machine, "list")
    assert done.returncode == 2
    assert "nothing is unpacked yet" in done.stderr


def test_a_command_sees_the_code_and_the_results(machine: Path) -> None:
    run(machine, "unpack")
    code = "import os, tests.gpu; print(os.getcwd(), os.environ['EAGLE3_RESULTS'])"
    done = run(machine, "exec", "python3", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        str(machine / "image/root" / WORKSPACE),
        str(machine / "results"),
    ]
    short = subprocess.run(
        [machine / "python3", "-c", "print(7)"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"EAGLE3_IN_PLACE": "1"},
    )
    assert short.stdout == "7\n"


def test_in_the_images_root_results_are_where_its_starter_puts_them(machine: Path) -> None:
    run(machine, "unpack")
    starter = machine / "image/run-in-image"
    starter.write_text('#!/bin/sh\necho "$PWD: $*"\n')
    assert "in the image's root" in run(machine, "unpack", EAGLE3_IN_PLACE="").stderr
    done = run(machine, "exec", "python3", "-V", EAGLE3_IN_PLACE="")
    words = f"env -C /{WORKSPACE} EAGLE3_RESULTS=/mnt python3 -V"
    assert done.stdout == f"{machine}/results: {words}\n", done.stderr


def test_a_signal_reaches_the_command(machine: Path) -> None:
    run(machine, "unpack")
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [machine / "python3", "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"EAGLE3_IN_PLACE": "1"},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.wait(200) == 9


def test_what_came_of_the_groups_is_copied_and_their_failure_told(
    machine: Path, tmp_path: Path
) -> None:
    write_code(
        machine,
        {"tests/__init__.py": "", "tests/gpu/__init__.py": "", "tests/gpu/proof.py": PROOF},
    )
    run(machine, "unpack")
    out = tmp_path / "out"
    out.mkdir()
    done = run(machine, "--gpus", "0,1", "preflight", OUT=str(out))
    assert done.returncode == 5, done.stderr
    assert done.stdout == f"{machine}/image/root/opt/eagle3\n"
    assert (out / "report.txt").read_text() == "--gpus 0,1 preflight"
    assert (out / "preflight.log").read_text() == "said"
