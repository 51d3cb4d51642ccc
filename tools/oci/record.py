"""Records the image's digest and tree in docker/: `tools/bazel run //docker:record`."""

import argparse
import os
import sys
from pathlib import Path

from tools.oci.compare import folder_hashes, write_tree
from tools.oci.contents import read_contents
from tools.oci.errors import ImageError, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--digest", type=Path, required=True)
    parser.add_argument("--contents", type=Path, nargs="+", required=True)
    parser.add_argument("--name", required=True, help="of the image")
    options = parser.parse_args()
    workspace = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if not workspace:
        raise ImageError("run it as: tools/bazel run //docker:record")
    target = Path(workspace, "docker", f"{options.name}.digest")
    target.write_text(options.digest.read_text())
    write_tree(target.with_suffix(".tree"), folder_hashes(map(read_contents, options.contents)))
    print(f"{target.name}: {options.digest.read_text().strip()}")


if __name__ == "__main__":
    sys.exit(run(main))
