"""The manifest: all that must be equal for states to belong together, and what was counted."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from eagle3.errors import StoreError
from eagle3.store.row_format import BFLOAT16, width

MANIFEST = "manifest.json"
SCHEMA_VERSION = 2


@dataclass(frozen=True)
class TargetIdentity:
    """`config_sha256` is of config.json; `weights_sha256` of blocks drawn from the weights.

    `path` is where the model lay; it is no part of its identity.
    """

    path: str = field(compare=False)
    config_sha256: str
    weights_sha256: str


@dataclass(frozen=True)
class SamplesIdentity:
    """`sha256` is over the sorted sample ids; `samples` and `tokens` count each sample once."""

    samples: int
    tokens: int
    sha256: str


@dataclass(frozen=True)
class DatasetIdentity(SamplesIdentity):
    """`held_out` are those that must not be trained on; None: nobody says that any are.

    Where it is not None, all of them that are in the store are marked in its index.
    """

    held_out: SamplesIdentity | None = None


@dataclass(frozen=True)
class StackIdentity:
    """The pinned set that made the states; `patches` maps a patch file to its SHA-256."""

    name: str
    digest: str
    versions: dict[str, str]
    patches: dict[str, str]


@dataclass(frozen=True)
class Counts:
    """What lies in the folder; `bytes` are of its shards, `quarantined` is by kind of fault."""

    samples: int
    tokens: int
    shards: int
    bytes: int
    quarantined: dict[str, int]


@dataclass(frozen=True)
class Manifest:
    """What a store holds: hidden states [T, L, H] with L = len(capture_points), as `dtype`.

    `tokenizer_sha256` is over the files, code included, that make token ids of text. `command` is
    the command line of the first run and `counts` is written when a run ends; neither takes part
    in a comparison.
    """

    target: TargetIdentity
    tokenizer_sha256: str
    dataset: DatasetIdentity
    stack: StackIdentity
    capture_points: tuple[int, ...]
    hidden_size: int
    dtype: str = BFLOAT16
    norm_applied: bool = False
    command: str = field(default="", compare=False)
    counts: Counts | None = field(default=None, compare=False)

    def states_bytes(self, tokens: int) -> int:
        """Size of the tensors of a sample of `tokens` tokens: states, ids and mask."""
        return tokens * (len(self.capture_points) * width(self.dtype, self.hidden_size) + 8 + 1)

    def to_json(self) -> str:
        fields: dict[str, Any] = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        if self.dataset.held_out is None:
            # As before there was such a field, so that older programs read it.
            del fields["dataset"]["held_out"]
        return json.dumps(fields, indent=2) + "\n"

    def with_held_out(self, held_out: SamplesIdentity | None) -> "Manifest":
        """The same, where these samples of the dataset are held out."""
        return replace(self, dataset=replace(self.dataset, held_out=held_out))

    def difference(self, other: "Manifest") -> str | None:
        """The first field in which `other` differs, as `name is theirs there and ours here`.

        None where the states of both belong together.
        """
        return _first_difference(_identity(self), _identity(other))


def read_manifest(folder: Path) -> Manifest:
    """Reads the manifest of the store in `folder`.

    Raises StoreError where it is missing, unreadable or of an unknown schema version.
    """
    path = folder / MANIFEST
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        version = fields.pop("schema_version")
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"{path} has schema version {version}, this program reads {SCHEMA_VERSION}; "
                "use the program that wrote it"
            )
        counts = fields.pop("counts")
        return Manifest(
            target=TargetIdentity(**fields.pop("target")),
            dataset=_dataset(fields.pop("dataset")),
            stack=StackIdentity(**fields.pop("stack")),
            capture_points=tuple(fields.pop("capture_points")),
            counts=Counts(**counts) if counts is not None else None,
            **fields,
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreError(f"{folder} holds no states: there is no {MANIFEST}") from error
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} is damaged ({error}); extract into another folder") from error


def _dataset(fields: dict[str, Any]) -> DatasetIdentity:
    held_out = fields.pop("held_out", None)
    return DatasetIdentity(**fields, held_out=held_out and SamplesIdentity(**held_out))


def _identity(manifest: Manifest) -> dict[str, Any]:
    """All fields but those that tell where and when a run took place."""
    fields: dict[str, Any] = asdict(manifest)
    target: dict[str, Any] = fields["target"]
    for circumstances, names in ((fields, ("command", "counts")), (target, ("path",))):
        for name in names:
            del circumstances[name]
    return fields


def _first_difference(ours: dict[str, Any], theirs: dict[str, Any], prefix: str = "") -> str | None:
    for name, value in ours.items():
        other = theirs.get(name)
        if isinstance(value, dict) and isinstance(other, dict):
            # Both ways round: a package that only one side has is a difference, too.
            missing = dict.fromkeys(other.keys() - value.keys())
            found = _first_difference({**value, **missing}, other, f"{prefix}{name}.")
            if found:
                return found
        elif value != other:
            return f"{prefix}{name} is {_show(other)} there and {_show(value)} here"
    return None


def _show(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{name} {_show(each)}" for name, each in value.items())
    text = str(value)
    return f"{text[:12]}..." if len(text) == 64 else text
