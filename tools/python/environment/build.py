"""Command of the environment repository rule: lock + patches -> site-packages + stamp.json."""

import argparse
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tools.bootstrap.errors import BootstrapError
from tools.python.environment import base, install, patching, record


def main() -> int:
    """Returns the exit code; a failure is told in one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True, help="name of the stack")
    parser.add_argument("--lock", type=Path, required=True, help="requirements with hashes")
    parser.add_argument("--uv", type=Path, required=True, help="the installer")
    parser.add_argument("--out", type=Path, required=True, help="folder to fill")
    parser.add_argument("--patch", type=Path, action="append", default=[], help="in order")
    parser.add_argument("--cuda-stubs", type=Path, help="symbols of the libraries to stand in for")
    options = parser.parse_args()

    def say(text: str) -> None:
        print(f"[{options.name} stack] {text}", file=sys.stderr, flush=True)

    try:
        build(options, say)
    except (
        BootstrapError,
        install.InstallError,
        patching.PatchError,
        LookupError,
        OSError,
    ) as error:
        say(f"ERROR: {error}")
        return 1
    return 0


def build(options: argparse.Namespace, say: Callable[[str], None]) -> None:
    """Fills `options.out` with site-packages/ and stamp.json."""
    begin = time.monotonic()
    # Before anything is fetched: a malformed patch should not cost a download.
    patches = [patching.read_patch(file) for file in options.patch]
    site = options.out / "site-packages"
    base.link_tree(
        base.base_site(options.name, options.lock, options.cuda_stubs, options.uv, say), site
    )

    changed: list[str] = []
    for patch in patches:
        changed += patching.apply_patch(patch, site)
    changed += write_markers(site, patches)
    record.refresh(site, changed)

    stamp = {
        "stack": options.name,
        "digest": stamp_digest(options),
        "versions": locked_versions(options.lock.read_text()),
        "patches": {patch.name: patch.digest for patch in patches},
    }
    write_stack_module(site, stamp)
    base.compile_files(site, [*changed, "eagle3_stack.py"])
    (options.out / "stamp.json").write_text(json.dumps(stamp, indent=1) + "\n")
    # Bazel sees of a source directory its time alone. Whoever depends on the stamp runs again when
    # something changed; a layer of an image depends on the hashes of its own files instead.
    os.utime(site, (0, 0))
    count = len(stamp["versions"])
    say(f"{count} packages, {len(patches)} patches, ready after {time.monotonic() - begin:.0f} s")


def locked_versions(lock: str) -> dict[str, str]:
    """Returns {distribution: version} of a requirements lock."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock, re.M))


def stamp_digest(options: argparse.Namespace) -> str:
    """A digest of all that the environment is made from, its builder's code included."""
    total = hashlib.sha256(sys.version.encode())
    sources = sorted(Path(__file__).parent.glob("*.py"))
    stub_list = [options.cuda_stubs] if options.cuda_stubs else []
    for file in [options.lock, *options.patch, *stub_list, *sources]:
        total.update(f"{file.name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def write_markers(site: Path, patches: list[patching.Patch]) -> list[str]:
    """Leaves `applied_patches.py` in each patched package, for a test to import.

    A list of patches that is merely configured proves nothing; this module is inside the
    package that runs.
    """
    by_package: dict[str, dict[str, str]] = {}
    for patch in patches:
        for change in patch.changes:
            package = change.path.split("/")[0]
            by_package.setdefault(package, {})[patch.name] = patch.digest
    paths = []
    for package, applied in sorted(by_package.items()):
        path = f"{package}/applied_patches.py"
        (site / path).write_text(
            '"""Patches of this package: file name -> SHA-256 of the patch file."""\n\n'
            f"PATCHES: dict[str, str] = {json.dumps(applied, indent=4)}\n"
        )
        paths.append(path)
    return paths


def write_stack_module(site: Path, stamp: dict) -> None:
    """Writes the module `eagle3_stack`: what a running program may say of its stack."""
    (site / "eagle3_stack.py").write_text(
        '"""The stack that this environment was built as."""\n\n'
        f"STACK: str = {stamp['stack']!r}\n"
        f"DIGEST: str = {stamp['digest']!r}\n"
        f"VERSIONS: dict[str, str] = {json.dumps(stamp['versions'], indent=4)}\n"
        f"PATCHES: dict[str, str] = {json.dumps(stamp['patches'], indent=4)}\n"
    )
    record.add_distribution(site, "eagle3_stack", "1", ["eagle3_stack.py"])


if __name__ == "__main__":
    sys.exit(main())
