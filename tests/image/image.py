"""Where the image under test lies, told by the target in variables."""

import json
import os
from pathlib import Path
from typing import Any

from tools.oci.contents import Contents, read_contents
from tools.oci.validate import read_blob


def layout() -> Path:
    """The OCI layout folder."""
    return Path(os.environ["IMAGE"])


def digest() -> str:
    """The manifest's digest."""
    return Path(os.environ["IMAGE_DIGEST"]).read_text().strip()


def contents() -> list[Contents]:
    """What each layer holds, the lowest first."""
    found = [read_contents(Path(path)) for path in os.environ["IMAGE_CONTENTS"].split()]
    order = [layer["digest"] for layer in manifest()["layers"]]
    return sorted(found, key=lambda item: order.index(item.layer.digest))


def manifest() -> dict[str, Any]:
    index = json.loads((layout() / "index.json").read_bytes())
    return read_blob(layout(), index["manifests"][0])


def config() -> dict[str, Any]:
    return read_blob(layout(), manifest()["config"])


def referrers() -> Path:
    """The OCI layout of the documents about the image."""
    return Path(os.environ["IMAGE_REFERRERS"])


def commands() -> list[str]:
    """Names of the programs in /usr/local/bin."""
    return os.environ["COMMANDS"].split()


def debs() -> list[Path]:
    """The packages that the test itself runs."""
    return [Path(path) for path in os.environ["TEST_TOOLS"].split()]
