"""The image as numbered parts, and the script that makes a root of them."""

import argparse
import subprocess
from pathlib import Path

import pytest
from runfiles import Runfiles

from tools.oci import bundle
from tools.oci.errors import ImageError
from tools.oci.layer import file_member, folder_member, write_layer
from tools.oci.layout import CONFIG, MANIFEST, Layout


def script() -> Path:
    runfiles = Runfiles.Create()
    found = runfiles.Rlocation("eagle3_training/docker/install.sh") if runfiles else None
    assert found
    return Path(found)


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """A bundle of two layers in parts of 100 bytes."""
    layout = Layout(tmp_path / "layout")
    layers = []
    for name in ("below", "above"):
        blob = tmp_path / f"{name}.tar.gz"
        members = [file_member(f"etc/{name}", name.encode() * 100)]
        if name == "below":
            members.append(folder_member("run"))
        layer = write_layer(name, members, blob, tmp_path / f"{name}.contents")
        layout.add_file(blob, layer.digest)
        layers.append({"digest": layer.digest, "size": layer.size})
    config = layout.add_json({"config": {"Env": ["A=1 2", "PATH=/bin"]}}, CONFIG)
    layout.finish([layout.add_json({"config": config, "layers": layers}, MANIFEST)])
    text = script().read_text()
    return bundle.write_bundle(tmp_path / "layout", text, tmp_path / "bundle", 100)


def install(folder: Path, root: Path | str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "install.sh", root], cwd=folder, capture_output=True, text=True, check=False
    )


def test_parts_are_as_large_as_asked_for(parts: list[Path]) -> None:
    sizes = [part.stat().st_size for part in parts if part.name.startswith("layer-00")]
    assert len(sizes) > 1
    assert set(sizes[:-1]) == {100}


def test_the_script_unpacks_them(parts: list[Path], tmp_path: Path) -> None:
    done = install(parts[0].parent, tmp_path / "root")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "root/root/etc/below").read_text() == "below" * 100
    assert (tmp_path / "root/root/etc/above").read_text() == "above" * 100
    assert (tmp_path / "root/environment").read_text() == "A='1 2'\nPATH=/bin\n"
    assert (tmp_path / "root/run-in-image").stat().st_mode & 0o111


def test_a_slash_at_the_end_of_the_root_changes_nothing(parts: list[Path], tmp_path: Path) -> None:
    done = install(parts[0].parent, f"{tmp_path}/the root//")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "the root/root/etc/below").exists()
    assert sorted(file.name for file in tmp_path.glob("the root*")) == ["the root"]


@pytest.mark.parametrize("root", ["", "/"])
def test_no_name_for_a_root_is_refused(root: str, parts: list[Path]) -> None:
    assert install(parts[0].parent, root).returncode == 2


@pytest.mark.parametrize("damage", ["flip", "remove"])
def test_a_damaged_part_is_refused(damage: str, parts: list[Path], tmp_path: Path) -> None:
    if damage == "flip":
        parts[1].write_bytes(b"\0" + parts[1].read_bytes()[1:])
    else:
        parts[1].unlink()
    done = install(parts[0].parent, tmp_path / "root")
    assert done.returncode == 1
    assert "error: a part is damaged or missing: copy it again" in done.stderr
    assert not (tmp_path / "root").exists()


def test_a_root_that_is_there_is_left_alone(parts: list[Path], tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    done = install(parts[0].parent, tmp_path / "root")
    assert done.returncode == 2
    assert "not there yet" in done.stderr


def test_a_bundle_that_is_there_is_left_alone(tmp_path: Path, parts: list[Path]) -> None:
    with pytest.raises(ImageError, match="is there already"):
        bundle.write_bundle(tmp_path / "layout", "", parts[0].parent, 100)


def test_more_parts_than_install_sh_can_put_in_order_are_refused(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "_MAX_PARTS", 2)
    with pytest.raises(ImageError, match="more than 2 parts of 50 bytes: name a larger"):
        bundle.write_bundle(tmp_path / "layout", "", tmp_path / "small", 50)
    assert not (tmp_path / "small").exists()


def test_sizes() -> None:
    assert bundle.part_size("2GB") == 2 * 10**9
    with pytest.raises(argparse.ArgumentTypeError):
        bundle.part_size("0GB")


def run_in_image(
    folder: Path, *, LD_LIBRARY_PATH: str = "", **stand_ins: str
) -> subprocess.CompletedProcess[str]:
    """Runs `true`; what needs rights that a test may not have is there in its name alone."""
    stand_ins["unshare"] = 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"'
    commands = folder / "commands"
    commands.mkdir()
    for name, text in stand_ins.items():
        (commands / name).write_text(f"#!/bin/sh\n{text}\n")
        (commands / name).chmod(0o755)
    return subprocess.run(
        [folder / "root/run-in-image", "true"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{commands}:/usr/bin:/bin", "LD_LIBRARY_PATH": LD_LIBRARY_PATH},
    )


def test_names_of_hosts_are_found_as_outside(parts: list[Path], tmp_path: Path) -> None:
    install(parts[0].parent, tmp_path / "root")
    done = run_in_image(
        tmp_path,
        mount='case "$*" in --bind*/root/etc/*) cp "$2" "$3" ;; esac',
        ldconfig="",
        chroot='cat "$1/etc/hosts" "$1/etc/resolv.conf"',
    )
    there = [Path("/etc/hosts"), Path("/etc/resolv.conf")]
    assert done.stdout == "".join(file.read_text() for file in there if file.exists())


def test_the_hosts_driver_is_bound_in_once_by_all_of_its_names(
    parts: list[Path], tmp_path: Path
) -> None:
    install(parts[0].parent, tmp_path / "root")
    for folder in ("listed", "told"):
        (tmp_path / folder).mkdir()
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            (tmp_path / folder / name).write_text(folder)
    listed = "".join(
        f"\t{name} (libc6{kind}) => {tmp_path}/listed/{name}\n"
        for name in ("libcuda.so.1", "libnvidia-ml.so.1", "libother.so.1")
        for kind in (",x86-64", "")
    )
    done = run_in_image(
        tmp_path,
        mount='case "$*" in --bind*/run/driver/*) cp "$2" "$3" ;; esac',
        ldconfig=f"printf '%s' '{listed}'",
        chroot='cd "$1/run/driver"; for name in *; do echo "$name $(cat "$name")"; done; '
        'echo "$LD_LIBRARY_PATH $TRITON_LIBCUDA_PATH"',
        LD_LIBRARY_PATH=f"{tmp_path}/told",
    )
    assert done.returncode == 0, done.stderr
    # The linker of Triton's starters asks for libcuda.so.
    assert done.stdout.splitlines() == [
        "libcuda.so listed",
        "libcuda.so.1 listed",
        "libnvidia-ml.so.1 listed",
        "/run/driver /run/driver",
    ]
