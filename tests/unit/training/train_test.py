"""A whole training: what it learns, what lies in its folder, how it goes on."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from eagle3.draft.export import load_draft
from eagle3.draft.provenance import PROVENANCE
from eagle3.draft.target_weights import read_target_weights
from eagle3.errors import Eagle3Error, InputError, StoreError
from eagle3.progress import Progress
from eagle3.store.reader import StoreReader
from eagle3.training.checkpoint import CHECKPOINTS, newest_checkpoint, read_state, read_tensors
from eagle3.training.log import METRICS, read_records
from eagle3.training.settings import read_settings
from eagle3.training.teacher import Teacher
from eagle3.training.train import (
    CONFIG,
    REPORT,
    new_draft,
    prepare_training,
    summary,
    train_draft,
)
from eagle3.training.trainer import Trainer
from tests.unit.training.tiny_run import (
    ALONE,
    into,
    make_store,
    make_target,
    make_world,
    run_training,
    tiny_config,
)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return make_world(tmp_path)


def contents(out: Path) -> dict[str, bytes]:
    """The bytes of the newest checkpoint's tensors."""
    folder = newest_checkpoint(out)
    assert folder is not None
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def test_a_draft_learns_and_is_exported(world: Path) -> None:
    report = run_training(tiny_config(world, max_steps=60, html=True))
    assert report is not None
    assert report.validated
    assert report.before is not None
    assert report.after is not None
    assert report.after > report.before + 0.5
    out = world / "out"
    assert report.draft is not None
    assert report.draft == out / "draft"
    draft = load_draft(report.draft)
    assert draft.config.capture_points == (2, 4, 5)
    provenance = json.loads((report.draft / PROVENANCE).read_text())
    assert provenance["target"] == str(world / "target")
    assert provenance["training"]["step"] == report.step
    assert "polyline" in (out / REPORT).read_text()
    assert read_settings(out / CONFIG)["run"]["out"] == str(out)


def test_a_draft_of_a_kimi_target_learns_and_is_exported(tmp_path: Path) -> None:
    """Its decoder is nested in configuration and weights, and its positions are YaRN's."""
    target = make_target(tmp_path / "target")
    text = json.loads((target / "config.json").read_text())
    yarn = {"factor": 64.0, "original_max_position_embeddings": 64, "beta_fast": 32.0}
    mscale = {"mscale": 1.0, "mscale_all_dim": 1.0}
    text |= {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "kimi_k2",
        "kv_lora_rank": 8,
        "rope_scaling": {"type": "yarn", **yarn, **mscale},
    }
    outer = {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25"}
    (target / "config.json").write_text(json.dumps({**outer, "text_config": text}))
    weights = load_file(target / "model.safetensors")
    nested = {f"language_model.{name}": value for name, value in weights.items()}
    save_file(nested, target / "nested.safetensors")
    (target / "model.safetensors").unlink()
    make_store(tmp_path / "store", target)
    report = run_training(tiny_config(tmp_path, max_steps=40))
    assert report is not None
    assert report.draft is not None
    assert report.before is not None
    assert report.after is not None
    assert report.after > report.before + 0.3
    draft = load_draft(report.draft)
    assert draft.config.rope_scaling == {"rope_type": "yarn", **yarn}
    assert torch.equal(draft.embed_tokens.weight, weights["model.embed_tokens.weight"])
    verifier = json.loads((report.draft / "config.json").read_text())["speculators_config"]
    assert verifier["verifier"]["architectures"] == outer["architectures"]


def test_the_commit_is_the_one_that_the_training_began_with(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = ["first"]
    for module in ("draft.provenance", "training.train"):
        monkeypatch.setattr(f"eagle3.{module}.running_commit", lambda: commits[-1])

    class Pulling(Progress):
        def say(self, line: str) -> None:
            if line.startswith("step 4/12"):
                commits.append("second")

    report = run_training(tiny_config(world), progress=Pulling())
    assert report is not None
    assert report.draft is not None
    assert json.loads((report.draft / PROVENANCE).read_text())["commit"] == "first"


def test_from_shuffled_states_a_draft_learns_less(world: Path) -> None:
    """The tiny target's next token follows from the token that the draft is fed, too."""
    real = run_training(tiny_config(world, max_steps=40))
    shuffled = run_training(
        into(tiny_config(world, max_steps=40, shuffle_states=True), world / "shuffled")
    )
    assert real is not None
    assert shuffled is not None
    assert real.after is not None
    assert shuffled.after is not None
    assert real.after > shuffled.after + 0.1


def test_an_epoch_sees_each_token_once_also_over_an_interruption(world: Path) -> None:
    config = tiny_config(world, checkpoint_every=3)
    plan = prepare_training(config, ALONE)
    for steps in (3, plan.batches_per_epoch):
        # The first run stands for one that was killed there: its schedule is a constant, too.
        schedule = replace(config.schedule, max_steps=steps, schedule="constant", warmup=0.0)
        run_training(replace(config, schedule=schedule))
        for path in (world / "out" / CHECKPOINTS).glob("*/state.json"):
            path.write_text(
                path.read_text().replace('"max_steps": 3', f'"max_steps": {plan.batches_per_epoch}')
            )
    last = read_records(world / "out" / METRICS)[-1]
    assert (last["kind"], last["step"]) == ("validation", plan.batches_per_epoch)
    assert last["tokens"] == plan.training.tokens


def test_the_exported_weights_are_those_of_the_best_checkpoint(world: Path) -> None:
    report = run_training(tiny_config(world, keep_checkpoints=9))
    assert report is not None
    assert report.draft is not None
    states = {
        folder: read_state(folder) for folder in sorted((world / "out" / CHECKPOINTS).iterdir())
    }
    best = max(states, key=lambda folder: states[folder].acceptance or 0)
    assert states[best].step == report.step
    draft = load_draft(report.draft)
    expected = read_tensors(best, "draft")["fc.weight"]
    assert torch.equal(draft.fc.weight, expected.to(torch.bfloat16))


def test_the_same_run_gives_the_same_bytes(world: Path) -> None:
    config = tiny_config(world, noise=0.1, ema=0.9)
    run_training(config)
    run_training(into(config, world / "again"))
    assert contents(world / "out") == contents(world / "again")


@pytest.mark.parametrize(
    "flags",
    [
        {"seed": 1},
        {"noise": 0.1},
        {"shuffle_states": True},
        {"norm_before_residual": True},
        {"ema": 0.9},
        {"optimizer": "muon"},
        {"schedule": "linear"},
        {"unroll_decay": 0.5},
        {"feed": "argmax"},
        {"train_head": True},
        {"clip": 0.01},
        {"weight_decay": 0.1},
    ],
)
def test_an_option_changes_what_is_learnt(world: Path, flags: dict[str, object]) -> None:
    run_training(tiny_config(world))
    run_training(into(tiny_config(world, **flags), world / "other"))
    assert contents(world / "out") != contents(world / "other")


def test_a_finished_run_goes_on_to_nothing(world: Path) -> None:
    config = tiny_config(world)
    first = run_training(config)
    before = contents(world / "out")
    assert run_training(config) == first
    assert contents(world / "out") == before


def test_another_recipe_is_refused_by_name(world: Path) -> None:
    run_training(tiny_config(world))
    with pytest.raises(StoreError, match=r"optimizer.learning_rate is 0.01 there and 0.02 here"):
        run_training(tiny_config(world, learning_rate=0.02))


def test_other_samples_are_refused(world: Path) -> None:
    config = tiny_config(world)
    run_training(config)
    other = make_store(world / "other", world / "target", seed=1)
    config = replace(config, data=replace(config.data, store=str(other)))
    with pytest.raises(StoreError, match="samples or its draft vocabulary are others"):
        run_training(config)


def test_what_does_not_touch_the_weights_may_change(world: Path) -> None:
    config = tiny_config(world)
    run_training(config)
    before = contents(world / "out")
    run_training(replace(config, run=replace(config.run, log_every=3, readers=2)))
    assert contents(world / "out") == before


def test_a_loss_that_is_not_finite_is_told(world: Path) -> None:
    with pytest.raises(Eagle3Error, match=r"at step \d+.*lower --learning-rate"):
        run_training(tiny_config(world, learning_rate=1e30, clip=1e30))


def test_without_validation_the_last_step_counts(world: Path) -> None:
    report = run_training(tiny_config(world, validation_share=0))
    assert report is not None
    assert not report.validated
    assert report.step == report.steps == 12
    # The first record is of the steps before it, not of an untrained draft.
    records = read_records(world / "out" / METRICS)
    first, last = (records[place]["acceptance_length"] for place in (0, -1))
    assert summary(report) == (
        "simulated acceptance length on the samples trained on: "
        f"{first:.3f} in the first steps, {last:.3f} in the last of 12"
    )


@pytest.mark.parametrize("share", [0.2, 0])
def test_a_finished_run_is_exported_also_where_its_records_are_lost(
    world: Path, share: float
) -> None:
    config = tiny_config(world, validation_share=share, html=True)
    first = run_training(config)
    (world / "out" / METRICS).unlink()
    again = run_training(config)
    assert first is not None
    assert again is not None
    assert (again.step, again.before) == (first.step, None)
    assert again.after == (first.after if share else None)
    said = f"{again.after:.3f} after step" if share else "its records are lost"
    assert f": {said}" in (world / "out" / REPORT).read_text()


def test_metrics_that_cannot_be_written_are_told(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("eagle3.training.log.os.fsync", full)
    with pytest.raises(StoreError, match=r"cannot write .*: No space left on device; "):
        run_training(tiny_config(world))


def test_a_validation_reads_only_what_it_measures(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = prepare_training(tiny_config(world, validation_share=0.5, validation_tokens=1), ALONE)
    draft = new_draft(plan, weights := read_target_weights(plan.model))
    trainer = Trainer(plan, draft, Teacher.of(weights, plan.vocabulary), ALONE)
    read: list[str] = []
    read_encoded = StoreReader.read_encoded

    def noted(store: StoreReader, sample_id: str) -> object:
        read.append(sample_id)
        return read_encoded(store, sample_id)

    monkeypatch.setattr(StoreReader, "read_encoded", noted)
    trainer.validate()
    assert read == list(plan.validation.ids[:1])


def test_a_validation_store_takes_the_place_of_a_share(world: Path) -> None:
    make_store(world / "held", world / "target", samples=3, seed=5)
    plan = prepare_training(tiny_config(world, validation_store=str(world / "held")), ALONE)
    assert (len(plan.training.ids), len(plan.validation.ids)) == (24, 3)


def test_a_validation_store_of_samples_that_are_learnt_is_refused(world: Path) -> None:
    with pytest.raises(InputError, match=r"all samples of .*store are trained on, too: give ano"):
        prepare_training(tiny_config(world, validation_store=str(world / "store")), ALONE)


def test_a_draft_begins_the_same_for_the_same_seed(world: Path) -> None:
    plan = prepare_training(tiny_config(world), ALONE)
    weights = read_target_weights(plan.model)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, second = new_draft(plan, weights), new_draft(plan, weights)
    assert torch.equal(torch.get_rng_state(), before)
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


def test_a_foreign_folder_is_left_alone(world: Path) -> None:
    (world / "out").mkdir()
    (world / "out" / "thesis.tex").write_text("mine")
    with pytest.raises(StoreError, match="not empty and holds no run"):
        run_training(tiny_config(world))
    assert [path.name for path in (world / "out").iterdir()] == ["thesis.tex"]


def test_what_can_take_long_is_not_silent(world: Path) -> None:
    told: list[str] = []

    class Reminding(Progress):
        @contextmanager
        def reminding(self, what: str) -> Generator[None]:
            told.append(what)
            yield

    config, progress = tiny_config(world, max_steps=1), Reminding()
    train_draft(prepare_training(config, ALONE, progress), ALONE, progress)
    assert told == [
        "reading the store's index and counting tokens",
        "reading the target's embeddings and head",
        "validating",
        "packing up to step 0",
        "validating",
        "saving step 1",
        "exporting the draft",
    ]


def test_a_gpu_that_is_full_is_told(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(Teacher, "to", full)
    with pytest.raises(InputError, match=r"do not fit into what is free of the GPU's memory: end"):
        run_training(tiny_config(world))


def test_two_trainings_do_not_write_to_one_folder(world: Path) -> None:
    class Again(Progress):
        def say(self, line: str) -> None:
            if line.startswith("step 4/12"):
                run_training(tiny_config(world))

    with pytest.raises(StoreError, match=r"another run is writing to .*out; wait"):
        run_training(tiny_config(world), progress=Again())
    run_training(tiny_config(world))


def test_states_of_other_points_are_refused(world: Path) -> None:
    make_store(world / "three", world / "target", points=(2, 4, 5))
    with pytest.raises(InputError, match="draft needs three, and 8 as the last: extract with --l"):
        prepare_training(tiny_config(world, store=str(world / "three")), ALONE)


def test_a_target_that_is_gone_or_changed_is_refused(world: Path) -> None:
    config = world / "target" / "config.json"
    text = config.read_text()
    config.write_text(text + "\n")
    with pytest.raises(InputError, match="not of the model in"):
        prepare_training(tiny_config(world), ALONE)
    config.unlink()
    with pytest.raises(InputError, match=r"is gone from .*; say where it is with --model"):
        prepare_training(tiny_config(world), ALONE)


def test_a_target_elsewhere_is_taken(world: Path) -> None:
    (world / "target").rename(world / "moved")
    plan = prepare_training(tiny_config(world, model=str(world / "moved")), ALONE)
    assert plan.model == world / "moved"


def test_the_shipped_target_of_another_installation_is_found(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = world / "here/eagle3_training/third_party/models/smollm2"
    shipped.parent.mkdir(parents=True)
    (world / "target").rename(shipped)
    monkeypatch.delenv("RUNFILES_MANIFEST_FILE", raising=False)
    monkeypatch.setenv("RUNFILES_DIR", str(world / "here"))
    assert prepare_training(tiny_config(world), ALONE).model == shipped
    # As a run writes it down that was given the model by name.
    there = tiny_config(world, model=str(world / "target"))
    assert prepare_training(there, ALONE).model == shipped


def test_long_samples_are_split_or_refused(world: Path) -> None:
    plan = prepare_training(tiny_config(world, tokens_per_step=16), ALONE)
    assert max(plan.training.lengths) > plan.capacity
    with pytest.raises(InputError, match="or give --long split"):
        prepare_training(tiny_config(world, tokens_per_step=16, long="refuse"), ALONE)
