"""Wraps documents about an image as OCI referrers: manifests whose subject is the image's.

Format: OCI image specification 1.1, "Guidelines for artifact usage".
"""

import argparse
import json
import sys
from pathlib import Path

from tools.oci.errors import run
from tools.oci.layout import MANIFEST, Layout

_EMPTY = "application/vnd.oci.empty.v1+json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layout", type=Path, required=True, help="the image's")
    parser.add_argument("--out", type=Path, required=True, help="layout to fill")
    parser.add_argument("--document", action="append", required=True, help="TYPE=FILE")
    options = parser.parse_args()
    image = json.loads((options.layout / "index.json").read_bytes())["manifests"][0]
    subject = {key: image[key] for key in ("mediaType", "digest", "size")}
    layout = Layout(options.out)
    manifests = []
    for item in options.document:
        media_type, _, file = item.partition("=")
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": media_type,
            "config": layout.add_bytes(b"{}", _EMPTY),
            "layers": [layout.add_bytes(Path(file).read_bytes(), media_type)],
            "subject": subject,
        }
        manifests.append(layout.add_json(manifest, MANIFEST) | {"artifactType": media_type})
    layout.finish(manifests)


if __name__ == "__main__":
    sys.exit(run(main))
