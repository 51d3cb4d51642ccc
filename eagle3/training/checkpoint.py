"""All of a run's state in a folder that appears whole or not at all."""

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from eagle3.errors import StoreError
from eagle3.store.durable import PARTIAL, partial_path, sync_folder, write_file
from eagle3.training.config import TrainConfig
from eagle3.training.order import RUN_START, EpochStart

CHECKPOINTS = "checkpoints"
_STATE = "state.json"
_FOLDER = re.compile(r"step-(\d{8})")


@dataclass(frozen=True)
class RunState:
    """Where a run is. What is drawn by lot follows from the configuration and `step` alone.

    `step` optimizer steps are done, and so many times `batches_per_step` batches were taken of
    the data that `data_sha256` names (TrainingPlan.data_sha256), with `tokens` in them, each
    counted as often as it was seen. `acceptance` is the validation's
    simulated acceptance length at this step, None where it was not taken. `epoch` is the one that
    the next batch is of, or an earlier one: nothing before it is packed again.
    """

    config: TrainConfig
    data_sha256: str
    step: int
    acceptance: float | None = None
    tokens: int = 0
    epoch: EpochStart = RUN_START


def save_checkpoint(
    out: Path, state: RunState, tensors: Mapping[str, Mapping[str, torch.Tensor]], keep: int
) -> Path:
    """Writes a checkpoint, one file of `tensors` a name, and removes those beyond `keep`.

    The best and the newest stay. A step that is there already only takes over `state`, such as
    what a validation has said since. Raises StoreError where the disk refuses; what was there
    stays.
    """
    folder = out / CHECKPOINTS / f"step-{state.step:08d}"
    content = (json.dumps(asdict(state), indent=2) + "\n").encode()
    try:
        if folder.exists():
            write_file(folder / _STATE, content)
            sync_folder(folder)
        else:
            _remove_rests(out)
            _write(folder, content, tensors)
        _remove_old(out, keep)
    except (OSError, SafetensorError) as error:
        raise StoreError(
            f"cannot write {folder}: {error}; the checkpoint before it is whole"
        ) from error
    return folder


def _write(folder: Path, state: bytes, tensors: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
    partial = partial_path(folder)
    partial.mkdir(parents=True)
    for name, group in tensors.items():
        path = partial / f"{name}.safetensors"
        save_file({key: value.contiguous() for key, value in group.items()}, path)
        with path.open("rb") as file:
            os.fsync(file.fileno())
    write_file(partial / _STATE, state)
    sync_folder(partial)
    partial.rename(folder)
    sync_folder(folder.parent)


def newest_checkpoint(out: Path) -> Path | None:
    """The folder of the last step that was saved."""
    return max(_folders(out), default=None)


def best_checkpoint(out: Path) -> Path | None:
    """The folder with the longest simulated acceptance; of equals the earliest."""
    measured = [
        (acceptance, folder)
        for folder in sorted(_folders(out))
        if (acceptance := read_state(folder).acceptance) is not None
    ]
    return max(measured, key=lambda pair: pair[0], default=(None, None))[1]


def read_state(folder: Path) -> RunState:
    """Raises StoreError where it is damaged."""
    path = folder / _STATE
    try:
        return msgspec.convert(json.loads(path.read_text(encoding="utf-8")), RunState)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise _damaged(folder, error) from error


def read_tensors(folder: Path, name: str) -> dict[str, torch.Tensor]:
    """A file of tensors, on the CPU. Raises StoreError where it is missing or damaged."""
    try:
        return load_file(folder / f"{name}.safetensors")
    except (OSError, SafetensorError) as error:
        raise _damaged(folder, error) from error


def check_resumable(folder: Path, there: RunState, here: RunState) -> None:
    """Raises StoreError, naming the first difference, where a run cannot go on from `there`."""
    difference = here.config.difference(there.config)
    if difference is None and there.data_sha256 != here.data_sha256:
        difference = "its samples or its draft vocabulary are others"
    if difference:
        raise StoreError(
            f"{folder.parent.parent} holds another run: {difference}; give the same, or another "
            "--out"
        )


def _remove_old(out: Path, keep: int) -> None:
    """Leaves `keep` checkpoints: the newest, the best, and the newest of the others."""
    folders = sorted(_folders(out), reverse=True)
    best = best_checkpoint(out)
    ranked = [*folders[:1], *([best] if best else []), *folders[1:]]
    kept = list(dict.fromkeys(ranked))[:keep]
    for folder in folders:
        if folder not in kept:
            # First it loses its name: a kill must not leave a checkpoint without its files.
            folder.rename(partial_path(folder))
    _remove_rests(out)


def _remove_rests(out: Path) -> None:
    """Removes what was not written, or not removed, to the end."""
    for path in (out / CHECKPOINTS).glob(f"*{PARTIAL}"):
        shutil.rmtree(path)


def _folders(out: Path) -> list[Path]:
    parent = out / CHECKPOINTS
    return [path for path in parent.glob("step-*") if _FOLDER.fullmatch(path.name)]


def _damaged(folder: Path, error: Any) -> StoreError:
    return StoreError(f"{folder} is damaged ({error}); remove it to go on from the one before")
