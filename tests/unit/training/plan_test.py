"""How many steps, which vocabulary, how much memory."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from eagle3.draft.model import DraftModel
from eagle3.draft.target_weights import read_target_weights
from eagle3.errors import InputError
from eagle3.preparation.dataset import VOCABULARY
from eagle3.preparation.vocabulary import TokenFrequencies, write_frequencies
from eagle3.training.arithmetic import flops_per_token
from eagle3.training.memory import plan_memory, trained_parameters
from eagle3.training.optimizer import Optimizer
from eagle3.training.plan import TrainingPlan
from eagle3.training.train import new_draft, prepare_training
from tests.unit.training.tiny_run import (
    ALONE,
    NUM_LAYERS,
    VOCAB_SIZE,
    make_store,
    make_world,
    tiny_config,
)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return make_world(tmp_path)


def plan_of(world: Path, **flags: object) -> TrainingPlan:
    return prepare_training(tiny_config(world, **flags), ALONE)


def test_steps_follow_from_epochs(world: Path) -> None:
    plan = plan_of(world, max_steps=None, epochs=3, tokens_per_step=128, batches_per_step=2)
    assert plan.capacity == 64
    assert plan.batches_per_epoch * 64 >= plan.training.tokens
    assert plan.steps == round(3 * plan.batches_per_epoch / 2)


def test_what_could_not_be_served_is_refused_before_the_training(world: Path) -> None:
    make_store(world / "zero", world / "target", points=(0, 4, 5, NUM_LAYERS))
    with pytest.raises(InputError, match=r"serves capture points 1 to 8 .*, not \(0, 4, 5\): ext"):
        plan_of(world, store=str(world / "zero"))


def test_a_validation_measures_no_more_than_it_may(world: Path) -> None:
    whole = plan_of(world, validation_share=0.5)
    assert whole.measured.ids == whole.validation.ids
    limit = sum(whole.validation.lengths[:3]) + 1
    part = plan_of(world, validation_share=0.5, validation_tokens=limit)
    assert part.measured.ids == whole.validation.ids[:3]
    assert part.training.ids == whole.training.ids
    least = plan_of(world, validation_share=0.5, validation_tokens=1)
    assert least.measured.ids == whole.validation.ids[:1]


def test_tokens_must_be_shared_evenly(world: Path) -> None:
    with pytest.raises(InputError, match="64 is not a multiple of --batches-per-step 5"):
        plan_of(world, batches_per_step=5)


def test_the_vocabulary_is_what_is_supervised_most(world: Path) -> None:
    plan = plan_of(world, draft_vocab=4)
    counts_V = plan.training.token_frequencies(VOCAB_SIZE)
    chosen = counts_V[plan.vocabulary.t2d_V]
    assert len(chosen) == 4
    assert chosen.min() >= counts_V[~plan.vocabulary.t2d_V].max()
    assert plan.coverage == pytest.approx(chosen.sum().item() / counts_V.sum().item())


def test_a_vocabulary_larger_than_the_target_is_all_of_it(world: Path) -> None:
    plan = plan_of(world, draft_vocab=32000)
    assert plan.draft.draft_vocab_size == VOCAB_SIZE
    assert plan.coverage == 1


def test_counts_of_a_prepared_dataset(world: Path) -> None:
    dataset = world / "dataset"
    dataset.mkdir()
    (dataset / "dataset.json").write_text('{"schema_version": 1, "sha256": "abc"}')
    counts = np.zeros(VOCAB_SIZE, np.int64)
    counts[[3, 9]] = 5
    write_frequencies(dataset / VOCABULARY, TokenFrequencies("abc", counts))
    plan = plan_of(world, draft_vocab=2, frequencies=str(dataset))
    assert plan.vocabulary.target_ids.tolist() == [3, 9]
    write_frequencies(dataset / VOCABULARY, TokenFrequencies("abc", counts[:-1]))
    with pytest.raises(InputError, match="counts 31 tokens and the target of"):
        plan_of(world, frequencies=str(dataset))


@pytest.mark.parametrize("train_head", [False, True])
def test_parameters_are_counted_as_they_are(world: Path, train_head: bool) -> None:
    plan = plan_of(world, train_head=train_head)
    draft = new_draft(plan, read_target_weights(plan.model))
    trained = sum(value.numel() for value in draft.parameters() if value.requires_grad)
    assert trained_parameters(plan.draft, train_head=train_head) == trained


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("train_head", [False, True])
def test_what_the_optimizer_remembers_is_counted_as_it_is(
    world: Path, optimizer: str, train_head: bool
) -> None:
    plan = plan_of(world, optimizer=optimizer, train_head=train_head)
    draft = new_draft(plan, read_target_weights(plan.model))
    made = Optimizer(draft, plan.config.optimizer)
    for parameter in made.parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    made.step(1.0)
    # A count of steps is a number alone.
    remembered = sum(value.nbytes for value in made.state().values() if value.ndim)
    assert plan_memory(plan, 1, torch.bfloat16).optimizer == remembered


def test_memory_follows_the_options(world: Path) -> None:
    plain = plan_memory(plan_of(world), 1, torch.bfloat16)
    trained = plain.weights // 4
    assert plain.gradients == 4 * trained
    assert plain.optimizer == 8 * trained
    assert plan_memory(plan_of(world, ema=0.9), 1, torch.bfloat16).optimizer == 12 * trained
    sharded = plan_memory(plan_of(world, parallel="fsdp"), 4, torch.bfloat16)
    assert sharded.weights == plain.weights // 4
    longer = plan_memory(plan_of(world, unroll_steps=6), 1, torch.bfloat16)
    assert 1.5 < longer.activations / plain.activations < 2
    assert plain.total > plain.activations


def test_flops_are_those_of_the_matrices(world: Path) -> None:
    plan = plan_of(world)
    draft = DraftModel(replace(plan.draft))
    layer = sum(value.numel() for value in draft.layers.parameters() if value.ndim == 2)
    fuse, head = draft.fc.weight.numel(), draft.lm_head.weight.numel()
    expected = 4 * fuse + 3 * (6 * layer + 4 * head) + 2 * head
    assert flops_per_token(plan.draft, 3, train_head=False) == expected
