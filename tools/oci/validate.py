"""Refuses an image that is unsafe, unusable or not what its manifest says."""

import argparse
import hashlib
import json
import os
import posixpath
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.oci.contents import Contents, Entry, read_contents, tree
from tools.oci.errors import ImageError, run

MAX_LAYER_BYTES = 4_000_000_000
_USER = "65532:65532"
_MAX_LINKS = 40
# The host's driver brings these; a copy inside would hide it.
_DRIVER = re.compile(r"/lib(cuda|nvidia-[a-z]+|nvcuvid)\.so")
# Names under which keys and passwords are kept.
_SECRETS = re.compile(
    r"(^|/)(id_(rsa|dsa|ecdsa|ed25519)|\.netrc|\.pypirc|\.npmrc|credentials|\.docker/config\.json"
    r"|\.git-credentials|pip\.conf|[^/]*\.(key|pfx|p12))$"
)
_COMMANDS = "usr/local/bin/"


def problems(config: Mapping[str, Any], layers: Sequence[Contents]) -> Iterator[str]:
    """One line for each thing that must not be."""
    entries = tree(layers)
    for path, entry in entries.items():
        yield from _entry_problems(path, entry)
        if entry.kind == "link" and _resolve(path, entries) is None:
            yield f"/{path} is a link to {entry.target}, which is not in the image"
    for contents in layers:
        if contents.layer.size > MAX_LAYER_BYTES:
            yield f"layer {contents.layer.name} has {contents.layer.size:,} bytes: split it"
    seen: dict[str, str] = {}
    for contents in layers:
        for entry in contents.entries:
            if entry.kind != "folder" and seen.setdefault(entry.path, contents.layer.name) != (
                contents.layer.name
            ):
                yield f"/{entry.path} is in {seen[entry.path]} and in {contents.layer.name}"
    settings = config["config"]
    if settings.get("User") != _USER:
        yield f"the image runs as {settings.get('User')!r}, not as {_USER}"
    if any(line.startswith("LD_LIBRARY_PATH=") for line in settings["Env"]):
        yield "LD_LIBRARY_PATH is set: it belongs to the host's driver"
    if "Entrypoint" in settings:
        yield "an entry point is set: remote executors start their own command"
    command = settings["Cmd"][0]
    if _resolve(f"{_COMMANDS}{command}", entries) is None:
        yield f"the default command {command} is not in /{_COMMANDS}"


def _entry_problems(path: str, entry: Entry) -> Iterator[str]:
    if entry.mode & 0o6000:
        yield f"/{path} is setuid or setgid"
    if entry.kind != "link" and entry.mode & 0o002 and not entry.mode & 0o1000:
        yield f"/{path} can be written by everybody"
    if entry.owner and not (entry.kind == "folder" and path == "home/nonroot"):
        yield f"/{path} belongs to user {entry.owner}, not to root"
    if _DRIVER.search(f"/{path}") and "/stubs/" not in path:
        yield f"/{path} is a library of the host's driver"
    if _SECRETS.search(path):
        yield f"/{path} looks like a secret"
    if path.startswith(("root/", "home/nonroot/", "tmp/")):
        yield f"/{path} is in a folder that must be empty"


def _resolve(path: str, entries: Mapping[str, Entry]) -> Entry | None:
    """What path leads to, links followed; None where it leads nowhere."""
    todo, done = path.split("/"), ""
    for _ in range(_MAX_LINKS):
        while todo:
            step = todo.pop(0)
            done = posixpath.normpath(posixpath.join(done, step)).lstrip("/")
            done = "" if done in (".", "..") else done
            entry = entries.get(done)
            if done and entry is None:
                # Folders that the kernel fills may be linked to, such as /proc/self/mounts.
                return (
                    Entry(done, "folder", 0o755) if done.split("/")[0] in ("proc", "run") else None
                )
            if entry is not None and entry.kind == "link":
                todo = entry.target.split("/") + todo
                done = "" if entry.target.startswith("/") else posixpath.dirname(done)
                break
        else:
            return entries.get(done, Entry("", "folder", 0o755))
    return None


def blob_path(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def read_blob(layout: Path, descriptor: Mapping[str, Any]) -> Any:
    """The JSON of a blob, checked against its descriptor."""
    data = blob_path(layout, descriptor["digest"]).read_bytes()
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != descriptor["digest"]:
        raise ImageError(f"the blob {descriptor['digest']} is damaged: build it again")
    return json.loads(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layout", type=Path, required=True)
    parser.add_argument("--contents", type=Path, action="append", required=True)
    parser.add_argument("--report", type=Path, required=True)
    options = parser.parse_args()
    index = json.loads((options.layout / "index.json").read_bytes())
    manifest = read_blob(options.layout, index["manifests"][0])
    config = read_blob(options.layout, manifest["config"])
    layers = [read_contents(path) for path in options.contents]
    found = list(problems(config, layers))
    if found:
        raise ImageError(f"the image is refused:{os.linesep}" + os.linesep.join(found))
    named = [(item["digest"], item["size"]) for item in manifest["layers"]]
    if sorted(named) != sorted((item.layer.digest, item.layer.size) for item in layers):
        raise ImageError("the manifest names other layers than the contents do")
    for digest, size in named:
        if blob_path(options.layout, digest).stat().st_size != size:
            raise ImageError(f"the blob {digest} is cut short: free some space and build again")
    options.report.write_text(f"{len(tree(layers))} paths in {len(layers)} layers\n")


if __name__ == "__main__":
    sys.exit(run(main))
