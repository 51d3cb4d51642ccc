"""Updates, learning rates and running means."""

import math
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from eagle3.draft.target_weights import read_target_weights
from eagle3.training.config import OptimizerConfig, ScheduleConfig
from eagle3.training.distributed import Processes
from eagle3.training.ema import RunningMean
from eagle3.training.optimizer import Optimizer, gathered
from eagle3.training.schedule import rate_share
from eagle3.training.train import _new_trainer, prepare_training
from tests.unit.training.tiny_run import ALONE, make_world, tiny_config


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.matrix = nn.Parameter(torch.randn(4, 3, generator=generator))
        self.norm = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)


def step(model: Model, optimizer: Optimizer, scale: float = 1.0, share: float = 1.0) -> float:
    (scale * (model.matrix.square().sum() + model.norm.sum())).backward()
    return optimizer.step(share).item()


def test_a_step_is_adamw_of_the_clipped_gradient() -> None:
    ours, plain = Model(), Model()
    config = OptimizerConfig(learning_rate=0.1, weight_decay=0.2, clip=0.5)
    optimizer = Optimizer(ours, config)
    expected = torch.optim.AdamW(
        [plain.matrix, plain.norm], lr=0.1 * 0.25, betas=(0.9, 0.95), weight_decay=0.2
    )
    for _ in range(3):
        norm = step(ours, optimizer, share=0.25)
        (plain.matrix.square().sum() + plain.norm.sum()).backward()
        assert norm == nn.utils.clip_grad_norm_([plain.matrix, plain.norm], 0.5).item() > 0.5
        expected.step()
        expected.zero_grad()
    assert torch.equal(ours.matrix, plain.matrix)
    assert torch.equal(ours.norm, plain.norm)
    assert torch.equal(ours.frozen, torch.ones(2))


def test_muon_takes_the_matrices_alone() -> None:
    adamw, muon = Model(), Model()
    step(adamw, Optimizer(adamw, OptimizerConfig()))
    step(muon, Optimizer(muon, OptimizerConfig(optimizer="muon")))
    assert torch.equal(adamw.norm, muon.norm)
    assert not torch.equal(adamw.matrix, muon.matrix)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_its_memory_comes_back(kind: str) -> None:
    config = OptimizerConfig(optimizer=kind, learning_rate=0.1)  # pyrefly: ignore
    whole, first, second = Model(), Model(), Model()
    optimizer = Optimizer(whole, config)
    for _ in range(4):
        step(whole, optimizer)
    before = Optimizer(first, config)
    for _ in range(2):
        step(first, before)
    second.load_state_dict(first.state_dict())
    after = Optimizer(second, config)
    after.load_state(before.state())
    for _ in range(2):
        step(second, after)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_no_update_waits_for_the_gpu(kind: Literal["adamw", "muon"]) -> None:
    """Tensors that only pretend to be on a GPU have no values: to read one is an error."""
    with FakeTensorMode():
        model = nn.ParameterDict(
            {
                "matrix": nn.Parameter(torch.empty(4, 3, device="cuda")),
                "norm": nn.Parameter(torch.empty(3, device="cuda")),
            }
        )
        optimizer = Optimizer(model, OptimizerConfig(optimizer=kind))
        mean = RunningMean(optimizer.parameters, 0.9)
        for _ in range(2):
            for parameter in optimizer.parameters.values():
                parameter.grad = torch.empty_like(parameter)
            norm = optimizer.step(0.5)
            mean.update()
        assert norm.device.type == "cuda"
        with pytest.raises(DataDependentOutputException):
            norm.item()


class Part:
    """Stands in for a DTensor on a GPU."""

    def __init__(self) -> None:
        self.gathered = self.copied = 0

    def detach(self) -> "Part":
        return self

    def full_tensor(self) -> "Part":
        self.gathered += 1
        return self

    def cpu(self) -> torch.Tensor:
        self.copied += 1
        return torch.ones(2)


@pytest.mark.parametrize("keep", [True, False])
def test_parts_are_gathered_by_all_and_copied_by_who_keeps_them(
    monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    monkeypatch.setattr("eagle3.training.optimizer.DTensor", Part)
    part = Part()
    kept = gathered({"part": part, "plain": torch.zeros(1)}, keep=keep)  # type: ignore
    assert (part.gathered, part.copied) == (1, keep)
    assert list(kept) == (["part", "plain"] if keep else [])


@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_process_alone_has_the_state(tmp_path: Path, rank: int) -> None:
    process = Processes(rank, 1, ALONE.device)
    plan = prepare_training(tiny_config(make_world(tmp_path), ema=0.9), process)
    trainer = _new_trainer(plan, read_target_weights(plan.model), process)
    sizes = {name: len(group) for name, group in trainer.state().items()}
    assert sizes.keys() == {"draft", "optimizer", "mean"}
    assert (sizes["draft"] > 0) == (rank == 0)
    assert (sizes["mean"] > 0) == (rank == 0)


def test_the_rate_rises_and_falls() -> None:
    config = ScheduleConfig(warmup=0.1, schedule="cosine", final_learning_rate=0.1)
    shares = [rate_share(config, step, 100) for step in range(100)]
    assert shares[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert shares[10] == 1
    assert shares[55] == pytest.approx(0.55)
    assert 0.1 < shares[99] < 0.102
    assert sorted(shares[10:], reverse=True) == shares[10:]


def test_the_other_schedules() -> None:
    linear = ScheduleConfig(warmup=0, schedule="linear")
    assert [rate_share(linear, step, 4) for step in range(4)] == [1, 0.75, 0.5, 0.25]
    constant = ScheduleConfig(warmup=0.5, schedule="constant")
    assert [rate_share(constant, step, 4) for step in range(4)] == [0.5, 1, 1, 1]


def test_the_mean_follows_the_weights_and_steps_in_for_them() -> None:
    weights = nn.Parameter(torch.tensor([0.0]))
    mean = RunningMean({"weights": weights}, 0.75)
    expected = 0.0
    for value in (1.0, 2.0):
        with torch.no_grad():
            weights.fill_(value)
        mean.update()
        expected = 0.75 * expected + 0.25 * value
    with mean.in_place():
        assert math.isclose(weights.item(), expected)
    assert weights.item() == 2.0
    assert math.isclose(mean.means["weights"].item(), expected)
