"""A trained draft as a folder that vLLM 0.16.0 serves and speculators 0.3.0 loads."""

import json
import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from eagle3.draft.config import DraftConfig
from eagle3.draft.model import DraftModel
from eagle3.draft.provenance import PROVENANCE, Provenance
from eagle3.draft.served_config import CONFIG, config_json, read_config
from eagle3.draft.vocabulary import VocabularyMap
from eagle3.errors import InputError, StoreError
from eagle3.store.durable import partial_path, sync_folder, write_file

WEIGHTS = "model.safetensors"
_NOT_CAST = ("d2t", "t2d")


def export_draft(model: DraftModel, folder: Path, provenance: Provenance) -> None:
    """Makes `folder` hold the draft, whole or not at all; an export that is there is replaced.

    Weights are bfloat16, under the names of speculators' `Eagle3DraftModel`, with `d2t_D` (int64
    offsets: draft id i is target id i + d2t[i]) and `t2d_V` (bool) among them. Raises InputError
    for a draft that vLLM could not serve as it was trained, for a vocabulary map that does not
    fit, and for a folder that holds something else; StoreError where it cannot be written.
    """
    config = config_json(model.config, provenance.target)
    weights = {name: _stored(name, tensor) for name, tensor in model.state_dict().items()}
    check_vocabulary(model.config, weights)
    if not _may_be_replaced(folder):
        raise InputError(f"{folder} holds something else than a draft: give another folder")
    try:
        _write(folder, config, weights, provenance)
    except (OSError, SafetensorError) as error:
        raise StoreError(
            f"cannot write {folder}: {error}; free its disk or give another"
        ) from error


def _may_be_replaced(folder: Path) -> bool:
    if not folder.exists():
        return True
    return folder.is_dir() and ((folder / PROVENANCE).exists() or not any(folder.iterdir()))


def _stored(name: str, tensor: torch.Tensor) -> torch.Tensor:
    dtype = tensor.dtype if name in _NOT_CAST else torch.bfloat16
    # A copy: tensors that share memory, as with a tied head, cannot be saved.
    return tensor.detach().to("cpu", dtype, copy=True).contiguous()


def _write(
    folder: Path, config: dict, weights: dict[str, torch.Tensor], provenance: Provenance
) -> None:
    partial = partial_path(folder)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    metadata = {
        "format": "pt",
        "commit": provenance.commit or "",
        "stack_digest": provenance.stack_digest,
        "dataset_sha256": ",".join(origin.dataset_sha256 for origin in provenance.states),
        "manifest_sha256": ",".join(origin.manifest_sha256 for origin in provenance.states),
    }
    save_file(weights, partial / WEIGHTS, metadata)
    with (partial / WEIGHTS).open("rb") as file:
        os.fsync(file.fileno())
    write_file(partial / CONFIG, (json.dumps(config, indent=2) + "\n").encode())
    write_file(partial / PROVENANCE, provenance.to_json().encode())
    sync_folder(partial)
    # A folder cannot be renamed over one that is not empty: the last export steps aside.
    aside = folder.with_name(folder.name + ".replaced")
    shutil.rmtree(aside, ignore_errors=True)
    if folder.exists():
        folder.rename(aside)
    partial.rename(folder)
    sync_folder(folder.parent)
    shutil.rmtree(aside, ignore_errors=True)


def load_draft(folder: Path) -> DraftModel:
    """The draft that `export_draft` wrote, in bfloat16 on the CPU; InputError where it is none."""
    model = DraftModel(read_config(folder))
    try:
        weights = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read {folder / WEIGHTS}: {error}") from error
    check_vocabulary(model.config, weights)
    try:
        # Assigned, not copied: a cast of the whole model would round its rotary frequencies.
        model.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        detail = " ".join(str(error).split())
        raise InputError(f"the weights in {folder} do not fit its config.json: {detail}") from error
    return model


def check_vocabulary(config: DraftConfig, weights: dict[str, torch.Tensor]) -> None:
    """Raises InputError unless `d2t_D` and `t2d_V` are among the weights and say the same.

    Without a map, or with one of zeros, vLLM takes draft id i for target id i and accepts next to
    nothing, in silence.
    """
    if not {"d2t", "t2d"} <= weights.keys():
        raise InputError("the draft has no vocabulary map (d2t, t2d): it cannot be served")
    d2t_D, t2d_V = weights["d2t"], weights["t2d"]
    if (len(d2t_D), len(t2d_V)) != (config.draft_vocab_size, config.vocab_size):
        raise InputError(
            f"d2t and t2d are of {len(d2t_D):,} and {len(t2d_V):,} tokens, the draft's config of "
            f"{config.draft_vocab_size:,} and {config.vocab_size:,}: export the draft again"
        )
    VocabularyMap(t2d_V, d2t_D).check()


def serve_command(folder: Path, *options: str, vllm_options: Sequence[str] = ()) -> str:
    """The command that serves the draft in `folder` with its target, in this workspace's vLLM.

    `options` are further ones of `serve`, `vllm_options` those that it hands on.
    """
    words = ["tools/bazel", "run", "--config=cuda128", "//eagle3:serve", "--", "--draft"]
    further = ["--", *vllm_options] if vllm_options else []
    return shlex.join([*words, str(folder), *options, *further])
