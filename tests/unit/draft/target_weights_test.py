"""Three tensors of a target, wherever its family keeps them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from eagle3.draft.target_weights import read_target_weights
from eagle3.errors import InputError

V, H = 10, 4
EMBED = torch.arange(V * H, dtype=torch.bfloat16).view(V, H)
HEAD = EMBED + 100
NORM = torch.arange(H, dtype=torch.bfloat16)
LAYER = torch.zeros(3, 3)


def write(folder: Path, shards: list[dict[str, torch.Tensor]], **config: Any) -> Path:
    """A checkpoint; more than one shard has an index."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    files = {f"model-{number}.safetensors": shard for number, shard in enumerate(shards)}
    for file, shard in files.items():
        save_file(shard, folder / file)
    if len(shards) > 1:
        weight_map = {name: file for file, shard in files.items() for name in shard}
        index = {"weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize(
    ("embed", "head", "norm"),
    [
        ("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"),
        (
            "language_model.model.embed_tokens.weight",
            "language_model.lm_head.weight",
            "language_model.model.norm.weight",
        ),
        (
            "model.language_model.embed_tokens.weight",
            "lm_head.weight",
            "model.language_model.norm.weight",
        ),
    ],
)
def test_the_names_of_the_families(tmp_path: Path, embed: str, head: str, norm: str) -> None:
    shards = [{embed: EMBED, "layers.0": LAYER}, {norm: NORM, head: HEAD}]
    folder = write(tmp_path / "m", shards, text_config={"rms_norm_eps": 0.5})
    weights = read_target_weights(folder)
    assert torch.equal(weights.embed_tokens_VH, EMBED)
    assert torch.equal(weights.lm_head_VH, HEAD)
    assert torch.equal(weights.final_norm_H, NORM)
    assert weights.rms_norm_eps == 0.5
    assert weights.lm_head_VH.dtype == torch.bfloat16


def test_a_tied_head_is_the_embeddings_themselves(tmp_path: Path) -> None:
    shard = {"model.embed_tokens.weight": EMBED, "model.norm.weight": NORM}
    weights = read_target_weights(write(tmp_path / "m", [shard], tie_word_embeddings=True))
    assert weights.lm_head_VH is weights.embed_tokens_VH


def test_only_the_files_of_the_three_are_opened(tmp_path: Path) -> None:
    shard = {
        "model.embed_tokens.weight": EMBED,
        "lm_head.weight": HEAD,
        "model.norm.weight": NORM,
    }
    folder = write(tmp_path / "m", [shard, {"layers.0": LAYER}])
    (folder / "model-1.safetensors").unlink()
    assert torch.equal(read_target_weights(folder).lm_head_VH, HEAD)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    shard = {"model.embed_tokens.weight": EMBED, "model.norm.weight": NORM}
    with pytest.raises(InputError, match="has no head"):
        read_target_weights(write(tmp_path / "untied", [shard], tie_word_embeddings=False))
    del shard["model.norm.weight"]
    with pytest.raises(InputError, match=r"model\.norm\.weight"):
        read_target_weights(write(tmp_path / "normless", [shard]))
    with pytest.raises(InputError, match=r"no \*\.safetensors"):
        read_target_weights(write(tmp_path / "empty", []))


def test_shapes_that_do_not_fit(tmp_path: Path) -> None:
    shard = {
        "model.embed_tokens.weight": EMBED,
        "lm_head.weight": HEAD[:-1].contiguous(),
        "model.norm.weight": NORM,
    }
    with pytest.raises(InputError, match="do not fit each other"):
        read_target_weights(write(tmp_path / "m", [shard]))


def test_a_damaged_shard(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", [])
    (folder / "model.safetensors").write_bytes(b"not a shard")
    with pytest.raises(InputError, match="cannot read the weights' names"):
        read_target_weights(folder)
