"""What the loop says of a GPU's first step, with a clock and a device that are made up."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from eagle3.progress import Progress
from eagle3.training import loop
from eagle3.training.distributed import Processes
from eagle3.training.log import METRICS, read_records
from eagle3.training.train import prepare_training, train_draft
from eagle3.training.trainer import Trainer
from tests.unit.training.tiny_run import ALONE, make_world, tiny_config

COMPILE_S, STEP_S = 60.0, 0.5


class SlowLoop(loop.Loop):
    """The loop as on a GPU; the trainer itself computes on the CPU."""

    def __init__(self, *arguments: object) -> None:
        plan, trainer, state, log, _processes, following = arguments
        on_gpu = Processes(0, 1, torch.device("cuda"))
        super().__init__(plan, trainer, state, log, on_gpu, following)  # type: ignore[arg-type]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The loop's time: a minute passes in the first step's call, half a second on the GPU."""
    clock = SimpleNamespace(now=0.0, synchronized=0)
    step = Trainer.step

    def slow_step(trainer: Trainer, number: int, *arguments: object) -> object:
        clock.now += COMPILE_S if number == 0 else STEP_S
        return step(trainer, number, *arguments)  # type: ignore[arg-type]

    def synchronize(_device: torch.device) -> None:
        clock.now += STEP_S
        clock.synchronized += 1

    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(loop, "peak_flops", lambda _device: None)
    monkeypatch.setattr(Trainer, "step", slow_step)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr("eagle3.training.train.Loop", SlowLoop)
    return clock


@pytest.mark.parametrize("log_every", [1, 2])
def test_a_rate_leaves_out_what_compiling_takes(
    tmp_path: Path,
    clock: SimpleNamespace,
    capsys: pytest.CaptureFixture[str],
    log_every: int,
) -> None:
    world = make_world(tmp_path)
    plan = prepare_training(tiny_config(world, max_steps=4, log_every=log_every), ALONE)
    train_draft(plan, ALONE, Progress())
    records = [r for r in read_records(world / "out" / METRICS) if r["kind"] == "train"]
    seen = 0
    for record in records:
        assert record["tokens_per_s"] == (record["tokens"] - seen) / (log_every * STEP_S)
        seen = record["tokens"]
    assert clock.synchronized == 1
    said = capsys.readouterr().err
    assert said.index("compiling for the GPU, before the first step ...") < said.index("validation")
    assert said.count("compiling for the GPU, the first step ...") == 1
    # Three steps, or two, at half a second each.
    assert (
        f"{'0:02' if log_every == 1 else '0:01'} left" in said.partition(f"step {log_every}/4")[2]
    )


def test_what_is_left_counts_validations_and_checkpoints(
    tmp_path: Path,
    clock: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    validate = Trainer.validate

    def slow_validate(trainer: Trainer) -> object:
        clock.now += 90.0
        return validate(trainer)

    monkeypatch.setattr(Trainer, "validate", slow_validate)
    config = tiny_config(make_world(tmp_path), max_steps=12, log_every=2, checkpoint_every=4)
    train_draft(prepare_training(config, ALONE), ALONE, Progress())
    left = [line[-9:] for line in capsys.readouterr().err.splitlines() if line.endswith(" left")]
    # Half a second a step; before the first pause nobody knows how long one takes.
    assert left == ["0:05 left", "0:04 left", "3:03 left", "3:02 left", "1:31 left", "1:30 left"]
