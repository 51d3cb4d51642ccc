"""The files of a checkpoint's weights: their headers are read, the weights are not."""

import json
import math
import re
import struct
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3.engine.installed import loading_order
from eagle3.errors import InputError

_INDEX = "model.safetensors.index.json"
_LFS_POINTER = b"version https://git-lfs"
_MAX_HEADER_BYTES = 100_000_000
_LAYER = re.compile(r"(.+?\.(?:layers|h|blocks))\.(\d+)\.")
# Extraction runs the target in bfloat16, so wider weights are narrowed as they are loaded.
_BYTES_WHEN_LOADED = {"F64": 2, "F32": 2, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U32": 4}


@dataclass(frozen=True)
class CheckpointFiles:
    """`files` are in the order of loading and `loaded` is the bytes of all weights in memory.

    `tensors` maps a name to the file that holds it, and `layers` where a row of layers stands,
    such as `model.layers`, to their numbers; both are empty for pickled weights.
    `faults` tell what is missing or damaged, each in a clause.
    """

    files: tuple[Path, ...]
    size: int
    loaded: int
    tensors: dict[str, Path]
    layers: dict[str, frozenset[int]]
    faults: tuple[str, ...]


def read_checkpoint_files(model: Path) -> CheckpointFiles:
    """Reads index and headers in `model`. Raises InputError for weights in no known format."""
    weight_map = _read_index(model)
    names = set(weight_map.values()) or {path.name for path in model.glob("*.safetensors")}
    if not names:
        return _read_pickled(model)
    files = loading_order([model / name for name in names])
    faults: list[str] = []
    held: dict[str, Path] = {}
    size = loaded = 0
    for path in files:
        try:
            header = _read_header(path)
        except ValueError as error:
            faults.append(f"{path.name} {error}")
            continue
        size += path.stat().st_size
        held |= dict.fromkeys(header, path)
        loaded += sum(map(_bytes_loaded, header.values()))
    if not faults:
        faults = [
            f"{file} has no {tensor}, which the index says it has"
            for tensor, file in weight_map.items()
            if held.get(tensor) != model / file
        ]
    return CheckpointFiles(tuple(files), size, loaded, held, _layers(held), tuple(faults))


def _read_index(model: Path) -> dict[str, str]:
    """Tensor -> file; empty without an index."""
    path = model / _INDEX
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["weight_map"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged ({error}); fetch the checkpoint again") from error


def _read_header(path: Path) -> dict[str, Any]:
    """Tensor -> its dtype, shape and place. Raises ValueError with what is wrong with the file."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            beginning = file.read(len(_LFS_POINTER))
            if beginning == _LFS_POINTER:
                raise ValueError("is a pointer of git-lfs, not weights")
            (length,) = struct.unpack("<Q", beginning[:8])
            if length > min(size, _MAX_HEADER_BYTES):
                raise ValueError("has no header of safetensors")
            file.seek(8)
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        end = 8 + length + max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
    except FileNotFoundError:
        raise ValueError("is missing") from None
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror})") from error
    except (
        json.JSONDecodeError,
        UnicodeDecodeError,
        struct.error,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:
        raise ValueError("has a damaged header") from error
    if size != end:
        raise ValueError(f"has {size:,} bytes, and its header is one of {end:,}")
    return header


def _bytes_loaded(tensor: dict[str, Any]) -> int:
    begin, end = tensor["data_offsets"]
    width = _BYTES_WHEN_LOADED.get(tensor["dtype"])
    return end - begin if width is None else math.prod(tensor["shape"]) * width


def _layers(tensors: Iterable[str]) -> dict[str, frozenset[int]]:
    found: defaultdict[str, set[int]] = defaultdict(set)
    for name in tensors:
        if match := _LAYER.match(name):
            found[match[1]].add(int(match[2]))
    return {place: frozenset(numbers) for place, numbers in found.items()}


def _read_pickled(model: Path) -> CheckpointFiles:
    """Of these nothing but sizes can be told without running what is in them."""
    files = loading_order(list(model.glob("*.bin")))
    if not files:
        raise InputError(f"no weights in {model} (*.safetensors or *.bin); complete the folder")
    size = sum(path.stat().st_size for path in files)
    return CheckpointFiles(tuple(files), size, size, {}, {}, ())
