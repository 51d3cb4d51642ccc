"""What prepare holds out stays out: from the dataset over the store to the samples trained on."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import eagle3.extraction.extract
from eagle3.draft.provenance import has_not_learnt
from eagle3.errors import EngineError, InputError, StoreError
from eagle3.extraction import rounds
from eagle3.extraction.extract import extract
from eagle3.preparation.drawing import part_digest
from eagle3.preparation.prepare import prepare
from eagle3.preparation.request import PreparationRequest
from eagle3.progress import Progress
from eagle3.store.index import INDEX, read_index
from eagle3.store.manifest import MANIFEST, read_manifest
from eagle3.store.merge import merge_parts
from eagle3.store.part import Part
from eagle3.store.reader import StoreReader
from eagle3.train import train
from eagle3.training import following
from eagle3.training.commit_order import CommitOrder, Mark
from eagle3.training.following import Following
from eagle3.training.log import METRICS, read_records
from eagle3.training.plan import TrainingPlan
from eagle3.training.samples import SHARE
from eagle3.training.stop import StopRequest
from eagle3.training.train import prepare_training
from tests.unit import tiny_target
from tests.unit.extraction.requests import make_request
from tests.unit.fake_engine import FailingEngine, FakeEngine, UnstartableEngine
from tests.unit.training.tiny_run import (
    ALONE,
    VOCAB_SIZE,
    into,
    make_samples,
    make_store,
    make_target,
    run_training,
    tiny_config,
)

SAMPLES = make_samples(40)


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eagle3.extraction.extract, "Engine", FakeEngine)
    for module in (rounds, following):
        monkeypatch.setattr(module, "_SECONDS_BETWEEN_LOOKS", 0.01)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """`target`, with a tokenizer for preparation, `data.jsonl` and the `dataset` made of it."""
    make_target(tmp_path / "target")
    tiny_target.make_target(tmp_path / "tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(tmp_path / "tokenizer" / name, tmp_path / "target" / name)
    lines = [
        json.dumps({"input_ids": sample.input_ids, "loss_mask": sample.loss_mask})
        for sample in SAMPLES
    ]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    make_dataset(tmp_path, 0.3)
    return tmp_path


def make_dataset(world: Path, share: float, name: str = "dataset") -> Path:
    request = PreparationRequest(
        world / "data.jsonl", world / "target", world / name, validation_share=share
    )
    prepare(request, Progress())
    return world / name


def ids_of(world: Path, part: str = "validation") -> set[str]:
    table = pq.read_table(world / "dataset" / f"{part}-00000.parquet")
    return set(table["id"].to_pylist())


def run_extraction(world: Path, data: str = "dataset", **changes: Any) -> None:
    options = {"preflight": False, "shard_bytes": 16_000, "max_tokens_per_step": 64}
    extract(
        make_request(world / "target", world / data, world / "store", **{**options, **changes}),
        Progress(),
    )


def plan_of(world: Path, **flags: Any) -> TrainingPlan:
    return prepare_training(tiny_config(world, **flags), ALONE)


def check(world: Path, plan: TrainingPlan) -> None:
    """The plan trains on the dataset's training part alone, and validates with the other."""
    assert 0 < len(ids_of(world)) < 40
    assert set(plan.training.ids) == ids_of(world, "train")
    assert set(plan.validation.ids) == ids_of(world)
    assert plan.held_out_by == "prepare"


def forget_marks(store: Path) -> None:
    """Leaves the store as an earlier version would have written it."""
    entries = read_index(store).values()
    plain = (replace(entry, held_out=False) for entry in entries)
    (store / INDEX).write_bytes(b"".join(entry.to_line() for entry in plain))
    (store / MANIFEST).write_text(read_manifest(store).with_held_out(None).to_json())


def test_what_prepare_holds_out_is_validated_with(world: Path) -> None:
    run_extraction(world)
    check(world, plan_of(world))
    # No other share, and no other seed, has a part in it.
    for flags in ({"validation_share": 0.0}, {"validation_share": 0.9}, {"seed": 7}):
        check(world, plan_of(world, **flags))


@pytest.mark.parametrize("follows", [False, True])
def test_the_draft_knows_what_it_has_not_learnt_from(world: Path, follows: bool) -> None:
    run_extraction(world)
    report = run_training(follow_config(world) if follows else tiny_config(world))
    assert report is not None
    assert report.draft is not None
    assert has_not_learnt(report.draft, part_digest(world / "dataset", "validation"))
    assert not has_not_learnt(report.draft, part_digest(world / "dataset", "train"))
    forget_marks(world / "store")
    report = run_training(tiny_config(world, max_steps=1, out=str(world / "other")))
    assert report is not None
    assert report.draft is not None
    assert not has_not_learnt(report.draft, part_digest(world / "dataset", "validation"))


def test_a_dataset_without_a_validation_part_is_split_by_share(world: Path) -> None:
    make_dataset(world, 0.0, "whole")
    run_extraction(world, "whole")
    plan = plan_of(world)
    assert plan.held_out_by == SHARE
    assert 0 < len(plan.validation.ids) < 40
    assert plan_of(world, validation_share=0.0).validation.ids == []


def test_what_is_cut_to_the_same_as_a_sample_held_out_is_held_out(world: Path) -> None:
    """The longer one is in the training part, which is read first."""
    long = [s for s in SAMPLES if s.id in ids_of(world) and len(s.input_ids) > 20]
    held_out = min(long, key=lambda sample: len(sample.input_ids))
    longer = {
        "input_ids": [*held_out.input_ids, 1],
        "loss_mask": [*held_out.loss_mask, 1],
    }
    with (world / "data.jsonl").open("a") as data:
        data.write("\n" + json.dumps(longer))
    shutil.rmtree(world / "dataset")
    make_dataset(world, 0.3)
    run_extraction(world, truncate=True, max_model_len=len(held_out.input_ids))
    store = StoreReader(world / "store")
    assert store.entries[held_out.id].held_out
    assert held_out.id not in plan_of(world).training.ids
    # Those that are cut themselves are no less held out.
    assert len(store.held_out) == len(ids_of(world)) > 1
    assert max(len(sample.input_ids) for sample in long) > len(held_out.input_ids)


def test_an_extraction_that_failed_goes_on_with_the_marks(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(eagle3.extraction.extract, "Engine", FailingEngine)
        with pytest.raises(EngineError):
            run_extraction(world, max_tokens_per_step=700)
    assert 0 < len(StoreReader(world / "store").ids) < 40
    run_extraction(world)
    check(world, plan_of(world))


def test_parts_and_their_merge_train_on_the_same(world: Path) -> None:
    for number in range(2):
        run_extraction(world, part=Part(number, 2))
    parts = plan_of(world)
    check(world, parts)
    merge_parts(world / "store")
    merged = plan_of(world)
    check(world, merged)
    assert merged.data_sha256 == parts.data_sha256


def test_a_store_of_an_earlier_version_is_split_by_share_until_extract_marks_it(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_extraction(world)
    forget_marks(world / "store")
    plan = plan_of(world)
    assert plan.held_out_by == SHARE
    assert not ids_of(world).isdisjoint(plan.training.ids)
    # Everything is there: no target is started for the marks.
    monkeypatch.setattr(eagle3.extraction.extract, "Engine", UnstartableEngine)
    run_extraction(world)
    check(world, plan_of(world))


def test_parts_of_an_earlier_version_are_gone_on_with_and_marked_when_merged(
    world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_extraction(world, part=Part(0, 2))
    forget_marks(world / "store" / "part-00000-of-00002")
    run_extraction(world, part=Part(1, 2))
    assert "are held out by prepare, which store cannot note" in capfd.readouterr().err
    assert plan_of(world).held_out_by == SHARE
    merge_parts(world / "store")
    run_extraction(world)
    check(world, plan_of(world))


def test_the_same_samples_from_elsewhere_do_not_undo_it(world: Path) -> None:
    run_extraction(world)
    with pytest.raises(StoreError, match=r"dataset\.held_out is samples .* there and None here"):
        run_extraction(world, "data.jsonl")
    check(world, plan_of(world))


def test_another_store_validates_and_what_is_held_out_is_still_not_trained_on(
    world: Path,
) -> None:
    run_extraction(world)
    make_store(world / "other", world / "target", samples=50)
    plan = plan_of(world, validation_store=str(world / "other"))
    assert set(plan.training.ids) == ids_of(world, "train")
    assert len(plan.validation.ids) == 50 - len(plan.training.ids)
    assert set(plan.validation.ids) > ids_of(world)
    # The store itself has what validates, too.
    same = plan_of(world, validation_store=str(world / "store"))
    assert set(same.training.ids) == ids_of(world, "train")
    assert set(same.validation.ids) == ids_of(world)


def test_a_store_without_anything_to_train_on_is_refused(world: Path) -> None:
    run_extraction(world)
    folder = world / "store"
    entries = read_index(folder).values()
    (folder / INDEX).write_bytes(b"".join(replace(e, held_out=True).to_line() for e in entries))
    message = "all 40 samples in .*store are held out: prepare the data with a smaller --valid"
    with pytest.raises(InputError, match=message):
        plan_of(world)
    with pytest.raises(InputError, match=r"no samples to train on are left .*: all 40 that came"):
        run_training(follow_config(world))


def test_a_run_does_not_go_on_where_another_part_is_held_out(world: Path) -> None:
    run_extraction(world)
    forget_marks(world / "store")
    configs = (
        tiny_config(world, max_steps=4),
        into(follow_config(world, max_steps=4), world / "followed"),
    )
    for config in configs:
        run_training(config)
    run_extraction(world)
    for config in configs:
        with pytest.raises(StoreError, match="its samples or its draft vocabulary are others"):
            run_training(config)


def test_the_command_says_what_holds_out(world: Path) -> None:
    run_extraction(world)
    assert said(world).endswith(f"; {described(world)} held out by prepare")
    other = make_store(world / "other", world / "target", samples=50)
    assert said(world, "--validation-store", str(other)).endswith(
        f" of --validation-store; {described(world)} held out by prepare, which are not trained on"
    )
    follow = ("--follow", "--draft-vocab", str(VOCAB_SIZE))
    assert said(world, *follow).endswith(
        f"; {described(world)} held out by prepare, which are not trained on"
    )
    forget_marks(world / "store")
    assert said(world).endswith(" tokens held out by --validation-share")
    assert said(world, *follow).endswith(" tokens; none held out")


def said(world: Path, *arguments: str) -> str:
    """The line on the data."""
    (world / "train.yaml").write_text("data: {validation_share: 0.2}")
    fixed = ["--config", "train.yaml", "--store", str(world / "store"), "--dry-run"]
    result = CliRunner(env={"BUILD_WORKING_DIRECTORY": str(world)}).invoke(
        train, [*fixed, *arguments]
    )
    assert result.exit_code == 0, result.stderr
    [line] = [line for line in result.stderr.splitlines() if line.startswith("data: ")]
    return line


def described(world: Path) -> str:
    held_out = [sample for sample in SAMPLES if sample.id in ids_of(world)]
    tokens = sum(len(sample.input_ids) for sample in held_out)
    return f"{len(held_out)} samples, {tokens} tokens"


def follow_config(world: Path, **flags: Any) -> Any:
    following_flags = {
        "follow": True,
        "follow_timeout": 200.0,
        "draft_vocab": VOCAB_SIZE,
        "checkpoint_every": 3,
        "log_every": 1,
        "max_steps": None,
    }
    return tiny_config(world, **(following_flags | flags))


def test_a_training_that_follows_leaves_it_out(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_extraction(world)
    taken = note_documents(monkeypatch)
    report = run_training(follow_config(world))
    assert report is not None
    assert set(taken) == ids_of(world, "train")
    # The learning rate ends where the data does: what is left out does not count.
    tokens = sum(len(sample.input_ids) for sample in SAMPLES if sample.id in taken)
    assert read_records(world / "out" / METRICS)[-1]["tokens"] == tokens
    assert prepare_training(follow_config(world), ALONE).steps == -(-tokens // 64)


def note_documents(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the samples that are in batches, in a list that grows."""
    taken: list[str] = []
    steps = Following.steps

    def noted(self: Following, first: int, stop: StopRequest) -> Any:
        for step in steps(self, first, stop):
            taken.extend(self.samples.ids[d.sample] for batch in step or () for d in batch)
            yield step

    monkeypatch.setattr(Following, "steps", noted)
    return taken


def test_what_is_held_out_does_not_fill_the_disk(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Extraction comes to it last, so that whole shards have nothing else."""
    taken = note_documents(monkeypatch)
    writer = Thread(target=lambda: run_extraction(world, disk_budget=32_000), daemon=True)
    writer.start()
    run_training(follow_config(world, delete_after_use=True, checkpoint_every=500))
    writer.join()
    assert set(taken) == ids_of(world, "train")
    store = StoreReader(world / "store")
    assert store.is_complete
    assert len(store.used) == 40
    assert not list((world / "store").glob("shard-*"))
    came = [e for e in CommitOrder(world / "out").read() if not isinstance(e, Mark)]
    assert {event.id for event in came if event.held_out} == ids_of(world)
