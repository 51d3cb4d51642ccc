"""Unpacks an OCI layout into a root folder, as any user: owners are left to who runs it."""

import argparse
import json
import os
import sys
import tarfile
from pathlib import Path

from tools.oci.errors import ImageError, run
from tools.oci.validate import blob_path, read_blob


def unpack(layout: Path, root: Path) -> dict[str, object]:
    """Fills `root`, a new folder, with the image's layers; returns the image's settings.

    Raises:
        ImageError: root exists already.
    """
    if root.exists():
        raise ImageError(f"{root} is there already: name a new folder")
    index = json.loads((layout / "index.json").read_bytes())
    manifest = read_blob(layout, index["manifests"][0])
    root.mkdir(parents=True)
    for layer in manifest["layers"]:
        with tarfile.open(blob_path(layout, layer["digest"]), mode="r|gz") as archive:
            # The archive is ours and validated; "data" would refuse links with absolute targets.
            archive.extractall(root, filter=_unowned)
    return read_blob(layout, manifest["config"])["config"]


def _unowned(item: tarfile.TarInfo, _: str) -> tarfile.TarInfo:
    item.uid, item.gid, item.uname, item.gname = os.getuid(), os.getgid(), "", ""
    return item


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layout", type=Path)
    parser.add_argument("root", type=Path)
    options = parser.parse_args()
    unpack(options.layout, options.root)


if __name__ == "__main__":
    sys.exit(run(main))
