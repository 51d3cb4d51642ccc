"""Pushes the image: `tools/bazel run //docker:push -- HOST/NAME [TAG ...]`.

The image goes by digest, then its bill of materials and provenance as referrers, the tags last;
prints the reference to pull by.
"""

import argparse
import sys
from pathlib import Path

from tools.oci.errors import run
from tools.oci.registry import Repository, check_tags


def main() -> None:
    parser = argparse.ArgumentParser(prog="push", description=__doc__)
    parser.add_argument("--layout", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--digest", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--referrers", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("repository", metavar="HOST/NAME")
    parser.add_argument("tags", metavar="TAG", nargs="*")
    options = parser.parse_args()
    digest = options.digest.read_text().strip()
    repository = Repository(options.repository)
    check_tags(options.tags)
    repository.push(options.layout, digest, [])
    repository.push_referrers(options.referrers, digest)
    repository.push(options.layout, digest, options.tags)
    print(f"{options.repository}@{digest}")


if __name__ == "__main__":
    sys.exit(run(main))
