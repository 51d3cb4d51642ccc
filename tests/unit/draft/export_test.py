"""What an export holds, what it refuses, and what a failure leaves."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from eagle3.draft import export
from eagle3.draft.export import WEIGHTS, export_draft, load_draft, serve_command
from eagle3.draft.provenance import PROVENANCE, Provenance, StatesOrigin, running_commit
from eagle3.draft.served_config import CONFIG, target_of
from eagle3.errors import InputError, StoreError
from eagle3.target import identify_target
from tests.unit.draft.drafts import (
    DRAFT_VOCAB_SIZE,
    NUM_LAYERS,
    VOCAB_SIZE,
    make_draft,
    make_target_config,
)

SMOLLM2 = "third_party/models/smollm2"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return make_target_config(tmp_path / "target")


def test_a_draft_comes_back_as_it_went(target: Path, tmp_path: Path) -> None:
    model = make_draft(target, norm_before_residual=True)
    export_draft(model, tmp_path / "draft", Provenance(target))
    loaded = load_draft(tmp_path / "draft")
    assert loaded.config == model.config
    before, after = model.state_dict(), loaded.state_dict()
    assert after.keys() == before.keys()
    for name, weight in before.items():
        assert torch.equal(after[name], weight.to(after[name].dtype)), name


def test_positions_are_not_rounded_with_the_weights(target: Path, tmp_path: Path) -> None:
    model = make_draft(target)
    export_draft(model, tmp_path / "draft", Provenance(target))
    loaded = load_draft(tmp_path / "draft")
    assert loaded.lm_head.weight.dtype == torch.bfloat16
    position_T = torch.tensor([0, 257, 511])
    for ours, theirs in zip(loaded.rotary(position_T), model.rotary(position_T), strict=True):
        assert torch.equal(ours, theirs)


def test_the_vocabulary_goes_there_and_back(target: Path, tmp_path: Path) -> None:
    export_draft(make_draft(target), tmp_path / "draft", Provenance(target))
    weights = load_file(tmp_path / "draft" / WEIGHTS)
    d2t_D, t2d_V = weights["d2t"], weights["t2d"]
    assert (d2t_D.dtype, t2d_V.dtype) == (torch.int64, torch.bool)
    draft_ids_V = t2d_V.cumsum(0) - 1
    target_ids_D = torch.arange(DRAFT_VOCAB_SIZE) + d2t_D
    assert t2d_V[target_ids_D].all()
    assert draft_ids_V[target_ids_D].tolist() == list(range(DRAFT_VOCAB_SIZE))
    assert target_ids_D[draft_ids_V[t2d_V]].tolist() == t2d_V.nonzero().flatten().tolist()


def test_every_key_is_written_out(target: Path, tmp_path: Path) -> None:
    scaling = {"rope_type": "linear", "factor": 4.0}
    model = make_draft(target, rope_scaling=scaling, rope_theta=500000.0)
    export_draft(model, tmp_path / "draft", Provenance(target))
    config = json.loads((tmp_path / "draft/config.json").read_text())
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]
    assert config["norm_before_residual"] is False
    assert config["speculators_config"]["verifier"] == {
        "name_or_path": str(target),
        "architectures": ["LlamaForCausalLM"],
    }
    layer = config["transformer_layer_config"]
    assert (layer["rope_theta"], layer["rope_scaling"]) == (500000.0, scaling)
    assert layer["rope_parameters"] == scaling | {"rope_theta": 500000.0}


def test_the_origin_is_told(target: Path, tmp_path: Path) -> None:
    states = StatesOrigin("manifest", "dataset", "config", "weights", "stack of the states")
    provenance = Provenance(target, (states,), {"steps": 7}, commit="abc")
    export_draft(make_draft(target), tmp_path / "draft", provenance)
    told = json.loads((tmp_path / "draft" / PROVENANCE).read_text())
    assert (told["commit"], told["training"]) == ("abc", {"steps": 7})
    assert told["states"][0]["dataset_sha256"] == "dataset"
    with safe_open(tmp_path / "draft" / WEIGHTS, "pt") as file:
        metadata = file.metadata()
    assert metadata["dataset_sha256"] == "dataset"
    assert metadata["stack_digest"] == told["stack_digest"] != ""


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for git; the code lies in the checkout `tmp_path`, of which one file is edited."""
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text(
        "#!/bin/sh\n"
        f'[ "$1 $2" = "-C {tmp_path}" ] || exit 1\n'
        f'case "$3" in rev-parse) printf "{tmp_path}\\nabc123\\n";; status) echo " M a.py";; esac\n'
    )
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(git.parent))
    monkeypatch.setattr("eagle3.draft.provenance._ROOT", tmp_path)
    return git


def test_the_commit_is_that_of_the_code(git: Path) -> None:
    assert running_commit() == "abc123+"
    git.write_text(git.read_text().replace(" M a.py", ""))
    assert running_commit() == "abc123"


def test_the_commit_of_another_checkout_is_not_ours(git: Path) -> None:
    git.write_text(git.read_text().replace('printf "', 'printf "/home/me'))
    assert running_commit() is None


def test_without_git_the_commit_is_that_of_the_bundle(git: Path, tmp_path: Path) -> None:
    git.unlink()
    assert running_commit() is None
    (tmp_path / "COMMIT").write_text("def456\n")
    assert running_commit() == "def456"


def test_the_command_names_the_folder(target: Path, tmp_path: Path) -> None:
    folder = tmp_path / "my draft"
    export_draft(make_draft(target), folder, Provenance(target))
    assert shlex.split(serve_command(folder))[-2:] == ["--draft", str(folder)]
    assert target_of(folder) == target


@pytest.mark.parametrize(
    ("d2t_D", "message"),
    [
        pytest.param(None, "no vocabulary map", id="none"),
        pytest.param(torch.zeros(DRAFT_VOCAB_SIZE, dtype=torch.int64), "differ", id="zeros"),
        pytest.param(torch.zeros(VOCAB_SIZE, dtype=torch.int64), "are of 64", id="another size"),
    ],
)
def test_a_reduced_vocabulary_without_its_map_is_refused(
    d2t_D: torch.Tensor | None, message: str, target: Path, tmp_path: Path
) -> None:
    model = make_draft(target)
    del model.d2t
    if d2t_D is not None:
        model.register_buffer("d2t", d2t_D)
    with pytest.raises(InputError, match=message):
        export_draft(model, tmp_path / "draft", Provenance(target))
    assert not (tmp_path / "draft").exists()


@pytest.mark.parametrize("points", [(0, 2, 4), (4, 2, 5), (2, 2, 5), (2, 4, NUM_LAYERS + 1)])
def test_points_that_cannot_be_served_are_refused(
    points: tuple[int, ...], target: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="vLLM serves"):
        export_draft(make_draft(target, points), tmp_path / "draft", Provenance(target))


@pytest.mark.parametrize("nested", [False, True])
def test_a_family_that_vllm_serves_no_draft_for_is_refused(
    nested: bool, target: Path, tmp_path: Path
) -> None:
    family = {"model_type": "mistral"}
    changes = {"text_config": family} if nested else family
    other = make_target_config(tmp_path / "other", **changes)
    with pytest.raises(InputError, match=r"EAGLE-3 drafts for llama, .*, not for a mistral: take"):
        export_draft(make_draft(target), tmp_path / "draft", Provenance(other))


def test_a_target_without_a_nested_decoder_may_say_so(tmp_path: Path) -> None:
    target = make_target_config(tmp_path / "target", text_config=None)
    export_draft(make_draft(target), tmp_path / "draft", Provenance(target))
    assert load_draft(tmp_path / "draft").config.capture_points == (2, 4, 5)


@pytest.mark.parametrize(("model_type", "served"), [("llama", True), ("qwen3", False)])
def test_the_state_after_the_last_layer(model_type: str, served: bool, tmp_path: Path) -> None:
    target = make_target_config(tmp_path / "target", model_type=model_type)
    model = make_draft(target, (2, 4, NUM_LAYERS))
    if served:
        export_draft(model, tmp_path / "draft", Provenance(target))
        assert load_draft(tmp_path / "draft").config.capture_points == (2, 4, NUM_LAYERS)
        return
    with pytest.raises(InputError, match="after the last layer of a qwen3"):
        export_draft(model, tmp_path / "draft", Provenance(target))


def test_a_scaling_that_vllm_reads_otherwise_is_refused(target: Path, tmp_path: Path) -> None:
    scaling: dict[str, Any] = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 128,
        "mscale_all_dim": 1.0,
    }
    model = make_draft(target, rope_scaling=scaling)
    with pytest.raises(InputError, match="mscale_all_dim"):
        export_draft(model, tmp_path / "draft", Provenance(target))


def test_an_export_is_replaced_and_nothing_else_is(target: Path, tmp_path: Path) -> None:
    folder = tmp_path / "draft"
    export_draft(make_draft(target), folder, Provenance(target))
    export_draft(make_draft(target, seed=1), folder, Provenance(target))
    assert torch.equal(
        load_draft(folder).fc.weight, make_draft(target, seed=1).fc.weight.to(torch.bfloat16)
    )
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="something else"):
        export_draft(make_draft(target), other, Provenance(target))
    assert [file.name for file in other.iterdir()] == ["thesis.txt"]


def test_a_failure_leaves_the_last_export(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "draft"
    export_draft(make_draft(target), folder, Provenance(target))

    def full_disk(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "write_file", full_disk)
    with pytest.raises(StoreError, match="No space left"):
        export_draft(make_draft(target, seed=1), folder, Provenance(target))
    monkeypatch.undo()
    assert torch.equal(
        load_draft(folder).fc.weight, make_draft(target).fc.weight.to(torch.bfloat16)
    )
    export_draft(make_draft(target, seed=1), folder, Provenance(target))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["draft", "target"]


def test_a_target_that_is_gone_is_told(target: Path, tmp_path: Path) -> None:
    folder = tmp_path / "draft"
    export_draft(make_draft(target), folder, Provenance(target))
    target.rename(tmp_path / "moved")
    with pytest.raises(InputError, match="target is gone; give its folder with --model"):
        target_of(folder)
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | {"speculators_config": None}))
    with pytest.raises(InputError, match="names no target; give its folder with --model"):
        target_of(folder)


def test_a_draft_finds_the_shipped_target_of_another_installation(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, shipped = tmp_path / "draft", tmp_path / "here/eagle3_training" / SMOLLM2
    (target / "model.safetensors").write_bytes(b"weights")
    identity = identify_target(target)
    digests = identity.config_sha256, identity.weights_sha256
    states = StatesOrigin("manifest", "dataset", *digests, "stack of the states")
    export_draft(make_draft(target), folder, Provenance(target, (states,)))
    # Its path is that of an image, say, and this is another machine.
    shipped.parent.mkdir(parents=True)
    target.rename(shipped)
    monkeypatch.delenv("RUNFILES_MANIFEST_FILE", raising=False)
    monkeypatch.setenv("RUNFILES_DIR", str(tmp_path / "here"))
    assert target_of(folder) == shipped
    (shipped / "model.safetensors").write_bytes(b"a model that was trained further")
    with pytest.raises(InputError, match=f"{target} is gone; give its folder with --model"):
        target_of(folder)
    (folder / PROVENANCE).unlink()
    with pytest.raises(InputError, match="target is gone"):
        target_of(folder)


def test_what_is_no_draft_is_told(target: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no draft in .*nothing; train one, or give"):
        load_draft(tmp_path / "nothing")
    with pytest.raises(InputError, match="not of an exported EAGLE-3 draft"):
        load_draft(target)
    folder = tmp_path / "draft"
    export_draft(make_draft(target), folder, Provenance(target))
    whole = json.loads((folder / CONFIG).read_text())
    for damaged, message in (
        ([], "is not the configuration of a model"),
        (whole | {"transformer_layer_config": []}, "is damaged"),
        (whole | {"eagle_aux_hidden_state_layer_ids": None}, "is damaged"),
    ):
        (folder / CONFIG).write_text(json.dumps(damaged))
        with pytest.raises(InputError, match=message):
            load_draft(folder)
    (folder / CONFIG).write_text(json.dumps(whole))
    weights = load_file(folder / WEIGHTS)
    del weights["fc.weight"]
    save_file(weights, folder / WEIGHTS)
    with pytest.raises(InputError, match=r"do not fit its config\.json.*fc\.weight"):
        load_draft(folder)
