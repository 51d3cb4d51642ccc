"""What a layer holds, written beside its blob: one JSON object a line, the layer itself first."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass(frozen=True)
class Entry:
    """One path of a layer, without a leading slash. Owner is uid and gid; sizes are in bytes."""

    path: str
    kind: Literal["file", "folder", "link"]
    mode: int
    owner: int = 0
    size: int = 0
    sha256: str = ""
    target: str = ""


@dataclass(frozen=True)
class Layer:
    """A finished layer: digest and size of the compressed blob, diff_id of the plain tar."""

    name: str
    digest: str
    size: int
    diff_id: str
    media_type: str = GZIP


@dataclass(frozen=True)
class Contents:
    """A layer and its entries, sorted by path."""

    layer: Layer
    entries: tuple[Entry, ...]

    @property
    def unpacked_size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.entries)


def write_contents(path: Path, layer: Layer, entries: Iterable[Entry]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for item in (layer, *entries):
            known = {key: value for key, value in asdict(item).items() if value != ""}
            file.write(json.dumps(known, sort_keys=True) + "\n")


def read_contents(path: Path) -> Contents:
    with path.open(encoding="utf-8") as file:
        layer = Layer(**json.loads(next(file)))
        return Contents(layer, tuple(Entry(**json.loads(line)) for line in file))


def tree(layers: Iterable[Contents]) -> dict[str, Entry]:
    """Path -> entry of the file system that the layers make, the later ones on top."""
    return {entry.path: entry for contents in layers for entry in contents.entries}
