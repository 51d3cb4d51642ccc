"""Writes where the image comes from: an in-toto statement with SLSA provenance, version 1."""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from tools.oci.errors import run
from tools.oci.release import read_release

_BUILD_TYPE = "https://bazel.build/"


def statement(
    name: str, digest: str, target: str, bazel: str, commit: str, locks: dict[str, bytes]
) -> dict[str, Any]:
    """The statement about one image; an unstamped build names no commit."""
    materials = [
        {"name": path, "digest": {"sha256": hashlib.sha256(data).hexdigest()}}
        for path, data in sorted(locks.items())
    ]
    if commit:
        materials.insert(0, {"name": "source", "digest": {"gitCommit": commit}})
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest.removeprefix("sha256:")}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": {"target": target},
                "internalParameters": {"bazel": bazel},
                "resolvedDependencies": materials,
            },
            # The build is the same wherever it runs, and claims no trusted builder.
            "runDetails": {"builder": {"id": "urn:builder:any-machine"}},
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--digest", type=Path, required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--bazel", type=Path, required=True, help=".bazelversion")
    parser.add_argument("--status", type=Path, help="stable-status.txt of a release")
    parser.add_argument("--lock", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    commit = read_release(options.status).commit if options.status else ""
    value = statement(
        options.name,
        options.digest.read_text().strip(),
        options.target,
        options.bazel.read_text().strip(),
        commit,
        {str(path): path.read_bytes() for path in options.lock},
    )
    options.out.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(run(main))
