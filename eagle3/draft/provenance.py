"""Where an exported draft comes from: its target, its states, its stack, its code."""

import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import eagle3_stack  # written into site-packages by the build

from eagle3.store.manifest import MANIFEST
from eagle3.store.reader import StoreReader

PROVENANCE = "provenance.json"
# However a command is started: Bazel's runfiles are links into the checkout.
_ROOT = Path(__file__).resolve().parents[2]
_COMMIT = "COMMIT"


@dataclass(frozen=True)
class StatesOrigin:
    """A store that a draft was trained on; the hashes are the ones of its manifest.

    The draft has not learnt from the samples of `held_out_sha256`; None: nobody held out any.
    """

    manifest_sha256: str
    dataset_sha256: str
    target_config_sha256: str
    target_weights_sha256: str
    stack_digest: str
    held_out_sha256: str | None = None

    @classmethod
    def of(cls, store: StoreReader) -> "StatesOrigin":
        """The origin that the manifest of `store` tells."""
        # A store of parts alone has its manifest in each of them.
        folders = [store.folder, *(store.folder / part for part in store.parts)]
        folder = next(folder for folder in folders if (folder / MANIFEST).exists())
        manifest, held_out = store.manifest, store.manifest.dataset.held_out
        return cls(
            manifest_sha256=hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest(),
            dataset_sha256=manifest.dataset.sha256,
            target_config_sha256=manifest.target.config_sha256,
            target_weights_sha256=manifest.target.weights_sha256,
            stack_digest=manifest.stack.digest,
            held_out_sha256=held_out.sha256 if held_out else None,
        )


@dataclass(frozen=True)
class Provenance:
    """What is written beside an exported draft.

    `target` is the folder of the target's checkpoint: serving looks for it there. `states` is
    empty for a draft that was not trained. `training` is what the training run wants to be known,
    of JSON's types: its configuration, its steps. `commit` is None where it is not known.
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


def has_not_learnt(folder: Path, held_out_sha256: str) -> bool:
    """Whether the draft in `folder` is known to have learnt from none of these samples.

    The digest is over their sorted ids. It is not known where its provenance is lost.
    """
    states = _read_states(folder)
    return bool(states) and all(
        origin.get("held_out_sha256") == held_out_sha256 for origin in states
    )


def target_digests(folder: Path) -> tuple[str, str]:
    """Digests of the target, of configuration and weights, that the draft in `folder` learnt from.

    They are empty for a draft that was not trained, and where its provenance is lost.
    """
    for origin in _read_states(folder):
        return origin.get("target_config_sha256", ""), origin.get("target_weights_sha256", "")
    return "", ""


def _read_states(folder: Path) -> list[dict[str, Any]]:
    """The stores that the draft in `folder` was trained on; none where its provenance is lost."""
    try:
        states = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))["states"]
        return [dict(origin) for origin in states]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def running_commit() -> str | None:
    """The commit of this code: of the checkout that it lies in, with `+` where that is edited.

    A bundle for machines without a checkout brings it in the file COMMIT.
    """
    if (_ROOT / _COMMIT).is_file():
        return (_ROOT / _COMMIT).read_text(encoding="utf-8").strip()
    try:
        root, head = _git("rev-parse", "--show-toplevel", "HEAD").splitlines()
        # An image's copy of the code may lie in somebody else's checkout.
        if Path(root) != _ROOT:
            return None
        return head + ("+" if _git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
