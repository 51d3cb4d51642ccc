"""Splits a site-packages into layers: writes one plan a layer, without reading the files.

A plan holds paths and hashes. A layer is made from its plan, so that an edit of one patch makes
one layer again, though the environment as a whole is new.
"""

import argparse
import json
import sys
from pathlib import Path

from tools.oci import selection, wheels
from tools.oci.errors import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--site", type=Path, required=True)
    parser.add_argument("--stubs", type=Path, help="list of the CUDA stand-ins in the site")
    parser.add_argument("--groups", required=True, help="JSON: layer -> patterns of distributions")
    parser.add_argument("--leave-out", action="append", default=[], help="a distribution")
    parser.add_argument("--leave-out-path", action="append", default=[], help="files")
    parser.add_argument("--plan", action="append", required=True, help="LAYER=FILE, one each")
    options = parser.parse_args()
    wanted = selection.Selection(tuple(options.leave_out), tuple(options.leave_out_path))
    files = selection.select(selection.installed(options.site, options.stubs), wanted)
    grouped = selection.group(files, json.loads(options.groups))
    for plan in options.plan:
        name, _, path = plan.partition("=")
        wheels.write_plan(Path(path), grouped[name])


if __name__ == "__main__":
    sys.exit(run(main))
