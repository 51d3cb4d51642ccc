"""Makes a layer of the workspace's own files, with a program in /usr/local/bin a command."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.oci.errors import run
from tools.oci.layer import Member, file_member, write_layer
from tools.oci.wheels import SITE

# Runfiles.Rlocation("eagle3_training/...") finds shipped files below RUNFILES_DIR.
RUNFILES = "opt/eagle3"
WORKSPACE = f"{RUNFILES}/eagle3_training"

_PROGRAM = '''\
#!/usr/bin/python3
"""Starts {module} on the stack that it was built with."""

import runpy
import sys

if __name__ == "__main__":
    import eagle3_stack

    if eagle3_stack.DIGEST != "{digest}":
        sys.exit(
            f"error: this image was built with the stack {digest}, and site-packages is "
            f"{{eagle3_stack.DIGEST}}: its layers do not belong together; pull it again by digest"
        )
    runpy.run_module("{module}", run_name="__main__", alter_sys=True)
'''


def members(files: list[tuple[str, Path]]) -> Iterator[Member]:
    """Files, and what is in folders, each at its path below the workspace."""
    for path, source in files:
        inner = sorted(source.rglob("*")) if source.is_dir() else [source]
        for file in inner:
            if file.is_file():
                below = os.path.join(path, file.relative_to(source)) if file != source else path
                # The right to execute is not tracked by Bazel: nothing here needs it.
                yield file_member(f"{WORKSPACE}/{below}", file)


def program_members(modules: list[str], stamp: Path) -> Iterator[Member]:
    """A program for each module eagle3.NAME, and the line that makes Python see the workspace."""
    digest = json.loads(stamp.read_text())["digest"]
    for module in modules:
        text = _PROGRAM.format(module=module, digest=digest)
        name = module.rpartition(".")[2]
        yield file_member(f"usr/local/bin/{name}", text.encode(), executable=True)
    yield file_member(f"{SITE}/eagle3_training.pth", f"/{WORKSPACE}\n".encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--file", action="append", default=[], help="PATH=FILE")
    parser.add_argument("--module", action="append", default=[], help="what commands start")
    parser.add_argument("--stamp", type=Path, help="stamp.json of the stack")
    parser.add_argument("--blob", type=Path, required=True)
    parser.add_argument("--contents", type=Path, required=True)
    options = parser.parse_args()
    files = [(path, Path(source)) for path, _, source in (f.partition("=") for f in options.file)]
    wanted = list(members(files))
    if options.stamp:
        wanted += program_members(options.module, options.stamp)
    write_layer(options.name, wanted, options.blob, options.contents)


if __name__ == "__main__":
    sys.exit(run(main))
