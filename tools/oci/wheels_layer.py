"""Makes a layer of wheels from its plan; every file is held against its RECORD as it is read."""

import argparse
import json
import sys
from pathlib import Path

from tools.oci import wheels
from tools.oci.errors import run
from tools.oci.layer import write_layer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--site", type=Path, required=True)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--links", default="{}", help="JSON: path -> link that replaces it")
    parser.add_argument("--blob", type=Path, required=True)
    parser.add_argument("--contents", type=Path, required=True)
    options = parser.parse_args()
    members = wheels.members(
        wheels.read_plan(options.plan), options.site, json.loads(options.links)
    )
    write_layer(options.name, members, options.blob, options.contents)


if __name__ == "__main__":
    sys.exit(run(main))
