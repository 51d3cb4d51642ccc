"""Where an exported draft comes from: its target, its states, its stack, its code."""

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import eagle3_stack  # written into site-packages by the build

from eagle3.store.manifest import MANIFEST, Manifest

PROVENANCE = "provenance.json"


@dataclass(frozen=True)
class StatesOrigin:
    """A store that a draft was trained on; the hashes are the ones of its manifest."""

    manifest_sha256: str
    dataset_sha256: str
    target_config_sha256: str
    target_weights_sha256: str
    stack_digest: str

    @classmethod
    def of(cls, folder: Path, manifest: Manifest) -> "StatesOrigin":
        """The origin that `manifest`, read from the store in `folder`, tells."""
        return cls(
            manifest_sha256=hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest(),
            dataset_sha256=manifest.dataset.sha256,
            target_config_sha256=manifest.target.config_sha256,
            target_weights_sha256=manifest.target.weights_sha256,
            stack_digest=manifest.stack.digest,
        )


@dataclass(frozen=True)
class Provenance:
    """What is written beside an exported draft.

    `target` is the folder of the target's checkpoint: serving looks for it there. `states` is
    empty for a draft that was not trained. `training` is what the training run wants to be known,
    of JSON's types: its configuration, its steps. `commit` is None where no git checkout is found.
    """

    target: Path
    states: Sequence[StatesOrigin] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    stack: str = eagle3_stack.STACK
    stack_digest: str = eagle3_stack.DIGEST
    commit: str | None = field(default_factory=lambda: running_commit())

    def to_json(self) -> str:
        fields = asdict(self) | {"target": str(self.target)}
        return json.dumps(fields, indent=2) + "\n"


def running_commit() -> str | None:
    """The commit of the checkout that `bazel run` was started from, with `+` where it is edited."""
    checkout = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if checkout is None:
        return None
    try:
        head = _git(checkout, "rev-parse", "HEAD")
        return head + ("+" if _git(checkout, "status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(checkout: str, *arguments: str) -> str:
    command = ["git", "-C", checkout, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
