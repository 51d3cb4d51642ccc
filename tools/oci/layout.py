"""Puts layers and a configuration together as an OCI image layout.

Formats: OCI image specification 1.1 (config, manifest, layout).
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.oci.contents import Contents, read_contents
from tools.oci.errors import run
from tools.oci.release import read_release

CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
TITLE = "org.opencontainers.image.title"
_CREATED = "org.opencontainers.image.created"


class Layout:
    """An OCI layout folder that is being filled."""

    def __init__(self, folder: Path) -> None:
        self._blobs = folder / "blobs/sha256"
        self._folder = folder
        self._blobs.mkdir(parents=True)

    def add_bytes(self, data: bytes, media_type: str) -> dict[str, Any]:
        """Stores a blob; returns its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        (self._blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    def add_json(self, value: Mapping[str, Any], media_type: str) -> dict[str, Any]:
        return self.add_bytes(_encoded(value), media_type)

    def add_file(self, file: Path, digest: str) -> None:
        """Stores a blob by a hard link; copies where links do not reach."""
        target = self._blobs / digest.removeprefix("sha256:")
        if target.exists():
            return
        try:
            os.link(file.resolve(), target)
        except OSError:
            shutil.copyfile(file, target)

    def finish(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Writes the index and the layout's marker."""
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": list(manifests)}
        (self._folder / "index.json").write_bytes(_encoded(index))
        (self._folder / "oci-layout").write_bytes(_encoded({"imageLayoutVersion": "1.0.0"}))


def image_config(
    settings: Mapping[str, Any], labels: Mapping[str, str], layers: Sequence[Contents]
) -> dict[str, Any]:
    """The image's configuration; `settings` are Env, User, Cmd and WorkingDir."""
    created = labels.get(_CREATED, _time(0))
    return {
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "config": {**settings, "Labels": dict(labels)},
        "rootfs": {"type": "layers", "diff_ids": [item.layer.diff_id for item in layers]},
        "history": [{"created": _time(0), "created_by": item.layer.name} for item in layers],
    }


def release_labels(status: Path) -> dict[str, str]:
    """Labels of a release: its commit, and that commit's time as the image's."""
    release = read_release(status)
    return {
        "org.opencontainers.image.revision": release.commit,
        _CREATED: _time(release.seconds),
    }


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, help="JSON: Env, User, Cmd, WorkingDir")
    parser.add_argument("--labels", required=True, help="JSON: labels and annotations")
    parser.add_argument("--status", type=Path, help="stable-status.txt of a release")
    parser.add_argument(
        "--layer", nargs=2, type=Path, action="append", metavar=("BLOB", "CONTENTS")
    )
    parser.add_argument("--layout", type=Path, required=True, help="folder to fill")
    parser.add_argument("--digest", type=Path, required=True, help="file for the digest")
    options = parser.parse_args()
    labels = json.loads(options.labels)
    if options.status:
        labels |= release_labels(options.status)
    layers = [read_contents(contents) for _, contents in options.layer]
    layout = Layout(options.layout)
    for (blob, _), contents in zip(options.layer, layers, strict=True):
        layout.add_file(blob, contents.layer.digest)
    config = layout.add_json(image_config(json.loads(options.config), labels, layers), CONFIG)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [
            {
                "mediaType": item.layer.media_type,
                "digest": item.layer.digest,
                "size": item.layer.size,
                "annotations": {TITLE: item.layer.name},
            }
            for item in layers
        ],
        "annotations": labels,
    }
    descriptor = layout.add_json(manifest, MANIFEST)
    layout.finish([descriptor | {"platform": {"architecture": "amd64", "os": "linux"}}])
    options.digest.write_text(descriptor["digest"] + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(run(main))
