"""Writes the code of the checkout's commit, the one part of a bundle that every commit changes.

    tools/bazel run //tests/gpu:code -- FOLDER

FOLDER gets code.tar.gz and its checksum; sent alone, `sh run.sh unpack` puts it over what is there.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.oci.errors import ImageError, run

CODE = "code.tar.gz"


def write_code(checkout: Path, folder: Path) -> None:
    """Packs the files of the checkout's commit, and its name in the file COMMIT.

    What is not in it is told. Raises ImageError where git has no commit to pack.
    """
    git = ["git", "-C", str(checkout)]
    commit = said_by(*git, "rev-parse", "HEAD")
    if edited := said_by(*git, "status", "--porcelain").splitlines():
        print(
            f"warning: {len(edited)} files are not as {commit[:12]} has them, such as "
            f"{edited[0][3:]}; what goes is the commit",
            file=sys.stderr,
        )
    file = folder / CODE
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "COMMIT").write_text(commit)
        added = f"--add-file={scratch}/COMMIT"
        said_by(*git, "archive", "--format=tar.gz", added, f"--output={file}", "HEAD")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    (folder / f"{CODE}.sha256").write_text(f"{digest}  {CODE}\n")


def said_by(*command: str) -> str:
    """What a command of git's prints; raises ImageError where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ImageError(f"git cannot tell the commit: {done.stderr.strip()}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="code", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), parser.parse_args().folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_code(Path(os.environ["BUILD_WORKSPACE_DIRECTORY"]), folder)
    print(f"{folder / CODE}: send it with {CODE}.sha256; there: sh run.sh unpack")


if __name__ == "__main__":
    sys.exit(run(main))
