"""The identity of a target, from the files in its folder, and the folder of an identity."""

import hashlib
from pathlib import Path

from eagle3.command import shipped_models
from eagle3.errors import InputError
from eagle3.store.manifest import TargetIdentity

_BLOCK_BYTES = 64 * 1024
_BLOCKS_PER_FILE = 16


def identify_target(model: Path) -> TargetIdentity:
    """Names the target and takes digests of its configuration and its weights.

    Raises InputError where there are no weights or they cannot be read.
    """
    try:
        return TargetIdentity(
            path=str(model),
            config_sha256=hashlib.sha256((model / "config.json").read_bytes()).hexdigest(),
            weights_sha256=_digest_weights(model),
        )
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from error


def find_target(target: TargetIdentity) -> Path | None:
    """Where the target lies: at its `path` or, gone from there, the shipped model that it is.

    The path of a shipped model is of one installation, and states and drafts are carried to others.
    """
    path = Path(target.path)
    if (path / "config.json").is_file():
        return path
    return next((model for model in shipped_models() if identify_target(model) == target), None)


def _digest_weights(model: Path) -> str:
    """SHA-256 over the name, size and evenly spaced blocks of each file of weights.

    A fine-tuned target has the files and sizes of its parent, so names and sizes are not enough;
    reading all of 540 GB over a network folder would take as long as loading it.
    """
    files = sorted(model.glob("*.safetensors")) or sorted(model.glob("*.bin"))
    if not files:
        raise InputError(f"no weights in {model} (*.safetensors or *.bin); complete the folder")
    digest = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as weights:
            for block in range(_BLOCKS_PER_FILE):
                weights.seek(max(0, size - _BLOCK_BYTES) * block // (_BLOCKS_PER_FILE - 1))
                digest.update(weights.read(_BLOCK_BYTES))
    return digest.hexdigest()
