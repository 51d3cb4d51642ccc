"""Holds an image against the recorded one, and says which layers and files differ.

The record is two files in the repository: NAME.digest, the digest of the manifest, and NAME.tree,
a hash for each folder of each layer, down to the distributions of site-packages.
"""

import argparse
import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from tools.oci.contents import Contents, Entry, read_contents
from tools.oci.errors import ImageError, run

# usr/local/lib/python3.13/dist-packages/NAME
_DEPTH = 6
_MAX_FILES = 20
Tree = Mapping[tuple[str, str], str]


def folder_of(entry: Entry) -> str:
    parts = PurePosixPath(entry.path).parts
    return "/".join(parts[: min(_DEPTH, max(1, len(parts) - 1))])


def folder_hashes(layers: Iterable[Contents]) -> Tree:
    """(layer, folder) -> hash of all that is below, the first 16 hexadecimal digits."""
    totals: dict[tuple[str, str], hashlib._Hash] = {}
    for contents in layers:
        for entry in contents.entries:
            key = (contents.layer.name, folder_of(entry))
            totals.setdefault(key, hashlib.sha256()).update(repr(entry).encode())
    return {key: total.hexdigest()[:16] for key, total in totals.items()}


def differences(recorded: Tree, layers: Sequence[Contents]) -> Iterator[str]:
    """One line for each folder that is not as recorded, followed by its files as they are now."""
    found = folder_hashes(layers)
    for key in sorted({*recorded, *found}):
        if recorded.get(key) == found.get(key):
            continue
        layer, folder = key
        verb = "is new" if key not in recorded else "is gone" if key not in found else "differs"
        yield f"layer {layer}: /{folder} {verb}"
        files = [
            entry
            for contents in layers
            if contents.layer.name == layer
            for entry in contents.entries
            if folder_of(entry) == folder and entry.kind != "folder"
        ]
        for entry in files[:_MAX_FILES]:
            yield f"    {entry.sha256[:16] or entry.target}  {entry.size:>10}  /{entry.path}"
        if len(files) > _MAX_FILES:
            yield f"    and {len(files) - _MAX_FILES} files more"


def exact_differences(old: Sequence[Contents], new: Sequence[Contents]) -> Iterator[str]:
    """One line for each path that two builds do not have in common."""
    before = {(c.layer.name, e.path): e for c in old for e in c.entries}
    after = {(c.layer.name, e.path): e for c in new for e in c.entries}
    for layer, path in sorted({*before, *after}):
        key = (layer, path)
        if before.get(key) != after.get(key):
            verb = "is new" if key not in before else "is gone" if key not in after else "differs"
            yield f"layer {layer}: /{path} {verb}"


def read_tree(file: Path) -> Tree:
    rows = (line.split(" ", 2) for line in file.read_text(encoding="utf-8").splitlines())
    return {(layer, folder): digest for digest, layer, folder in rows}


def write_tree(file: Path, tree: Tree) -> None:
    lines = (f"{digest} {layer} {folder}\n" for (layer, folder), digest in sorted(tree.items()))
    file.write_text("".join(lines), encoding="utf-8")


def _require_same(old: Sequence[Contents], new: Sequence[Contents]) -> None:
    if lines := list(exact_differences(old, new)):
        raise ImageError("\n".join(["the builds differ:", *lines]))
    print("both builds have the same files in the same layers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contents", type=Path, nargs="+", required=True, help="of this build")
    parser.add_argument("--digest", type=Path, help="of this build; with --recorded")
    other = parser.add_mutually_exclusive_group(required=True)
    other.add_argument("--recorded", type=Path, help="NAME.digest, beside NAME.tree")
    other.add_argument("--against", type=Path, nargs="+", help="contents of another build")
    options = parser.parse_args()
    if options.recorded and not options.digest:
        parser.error("--recorded needs --digest")
    layers = [read_contents(path) for path in options.contents]
    if options.against:
        _require_same([read_contents(path) for path in options.against], layers)
        return
    found, recorded = options.digest.read_text().strip(), options.recorded.read_text().strip()
    if found == recorded:
        print(f"{found}, as recorded")
        return
    lines = list(differences(read_tree(options.recorded.with_suffix(".tree")), layers))
    raise ImageError(
        f"this build is {found} and {options.recorded.name} says {recorded}\n"
        + "\n".join(lines or ["all files are the same: the configuration or the labels differ"])
        + "\nIf that is meant, record it: tools/bazel run //docker:record"
    )


if __name__ == "__main__":
    sys.exit(run(main))
