"""Writes the code of the checkout's commit, the one part of a bundle that every commit changes.

    tools/bazel run //tests/gpu:code -- FOLDER

FOLDER gets code.tar.gz and its checksum; sent alone, `sh run.sh unpack` puts it over what is there.
"""

import argparse
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

CODE = "code.tar.gz"


def write_code(checkout: Path, folder: Path) -> None:
    """Packs the files of the checkout's commit, and its name in the file COMMIT."""
    git = ["git", "-C", str(checkout)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, check=True).stdout
    file = folder / CODE
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "COMMIT").write_bytes(commit)
        added = f"--add-file={scratch}/COMMIT"
        command = [*git, "archive", "--format=tar.gz", added, f"--output={file}", "HEAD"]
        subprocess.run(command, check=True)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    (folder / f"{CODE}.sha256").write_text(f"{digest}  {CODE}\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="code", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), parser.parse_args().folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_code(Path(os.environ["BUILD_WORKSPACE_DIRECTORY"]), folder)
    print(f"{folder / CODE}: send it with {CODE}.sha256; there: sh run.sh unpack")


if __name__ == "__main__":
    main()
