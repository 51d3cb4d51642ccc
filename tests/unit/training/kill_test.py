"""A run that is ended at any moment and started again equals one that was not, byte for byte."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import eagle3.training.checkpoint
import eagle3.training.data
from eagle3.progress import Progress
from eagle3.training import loop
from eagle3.training.checkpoint import newest_checkpoint, read_state
from eagle3.training.config import TrainConfig
from eagle3.training.log import METRICS, read_records
from eagle3.training.order import epoch_order
from eagle3.training.stop import StoppedError
from eagle3.training.trainer import Trainer
from tests.unit.training.tiny_run import into, make_world, run_training, tiny_config

STEPS = 12
RATES = ("tokens_per_s", "waited")


def contents(out: Path) -> dict[str, bytes]:
    folder = newest_checkpoint(out)
    assert folder is not None
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def losses(out: Path) -> list[tuple[str, int, float]]:
    records = read_records(out / METRICS)
    return [(record["kind"], record["step"], record["loss"]) for record in records]


def run_in_child(config: TrainConfig) -> int:
    """The status, as waitpid has it, of a process that trained."""
    child = os.fork()
    if child == 0:
        try:
            run_training(config)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


@pytest.fixture
def whole(tmp_path: Path) -> TrainConfig:
    """The configuration of a run that was left in peace, with all that has state."""
    config = tiny_config(
        make_world(tmp_path), max_steps=STEPS, noise=0.1, ema=0.9, optimizer="muon", log_every=1
    )
    run_training(config)
    return config


@pytest.mark.parametrize("step", [0, 1, 4, 6, 11])
def test_killed_in_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: TrainConfig, step: int
) -> None:
    original = Trainer.step

    def killed(self: Trainer, number: int, *arguments: Any) -> Any:
        if number == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, number, *arguments)

    config = into(whole, tmp_path / "killed")
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", killed)
        assert os.WTERMSIG(run_in_child(config)) == signal.SIGKILL
    run_training(config)
    assert contents(tmp_path / "killed") == contents(tmp_path / "out")
    assert losses(tmp_path / "killed") == losses(tmp_path / "out")


@pytest.mark.parametrize("name", ["save_file", "write_file", "sync_folder", "_remove_old"])
def test_killed_while_saving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: TrainConfig, name: str
) -> None:
    original = getattr(eagle3.training.checkpoint, name)
    calls = 0

    def killed(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        # In the middle of the second checkpoint.
        if calls == {"save_file": 5, "write_file": 2, "sync_folder": 4, "_remove_old": 2}[name]:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments)

    config = into(whole, tmp_path / "killed")
    with monkeypatch.context() as patch:
        patch.setattr(eagle3.training.checkpoint, name, killed)
        assert os.WTERMSIG(run_in_child(config)) == signal.SIGKILL
    survivor = newest_checkpoint(tmp_path / "killed")
    assert survivor is not None
    renamed = name in ("sync_folder", "_remove_old")
    assert survivor.name == ("step-00000008" if renamed else "step-00000004")
    run_training(config)
    assert contents(tmp_path / "killed") == contents(tmp_path / "out")
    left = [path.name for path in (tmp_path / "killed" / "checkpoints").iterdir()]
    assert not [name for name in left if name.endswith(".partial")]


def test_killed_at_random_moments(tmp_path: Path, whole: TrainConfig) -> None:
    chance = random.Random(0)
    config = into(whole, tmp_path / "killed")
    metrics = tmp_path / "killed" / METRICS
    killed = 0
    for records in sorted(chance.sample(range(STEPS), 5)):
        child = os.fork()
        if child == 0:
            try:
                run_training(config)
            finally:
                os._exit(1)
        # Time says little on a busy machine: the moment goes by what the run has written.
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < records:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.01))
        os.kill(child, signal.SIGKILL)
        # The last moments may come when it has ended.
        killed += os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert killed > 1
    run_training(config)
    assert contents(tmp_path / "killed") == contents(tmp_path / "out")
    assert losses(tmp_path / "killed") == losses(tmp_path / "out")


class _Signalling(Progress):
    def __init__(self, number: signal.Signals) -> None:
        self._number = number

    def say(self, line: str) -> None:
        if line.startswith(f"step 7/{STEPS}"):
            signal.raise_signal(self._number)


def test_sigterm_saves_and_ends(tmp_path: Path, whole: TrainConfig) -> None:
    config = into(whole, tmp_path / "stopped")
    with pytest.raises(StoppedError, match="stopped by SIGTERM after step 7; the same comm") as e:
        run_training(config, progress=_Signalling(signal.SIGTERM))
    assert e.value.exit_code == 143
    assert (newest_checkpoint(tmp_path / "stopped") or tmp_path).name == "step-00000007"
    run_training(config)
    assert contents(tmp_path / "stopped") == contents(tmp_path / "out")
    assert losses(tmp_path / "stopped") == losses(tmp_path / "out")


def test_going_on_packs_no_epoch_that_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At millions of samples a packed epoch takes minutes."""
    world = make_world(tmp_path)
    # A step of two batches takes from both sides where an epoch ends.
    config = tiny_config(
        world, max_steps=STEPS, tokens_per_step=512, batches_per_step=2, log_every=1
    )
    run_training(config)
    stopped = into(config, tmp_path / "stopped")
    with pytest.raises(StoppedError):
        run_training(stopped, progress=_Signalling(signal.SIGTERM))
    newest = newest_checkpoint(tmp_path / "stopped")
    assert newest is not None
    place = read_state(newest).epoch
    assert place.epoch > 1
    packed: list[int] = []

    def record(samples: int, seed: int, epoch: int) -> Any:
        packed.append(epoch)
        return epoch_order(samples, seed, epoch)

    monkeypatch.setattr(eagle3.training.data, "epoch_order", record)
    run_training(stopped)
    assert min(packed) == place.epoch
    assert contents(tmp_path / "stopped") == contents(tmp_path / "out")


def test_ctrl_c_saves_and_ends(tmp_path: Path, whole: TrainConfig) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_training(into(whole, tmp_path / "stopped"), progress=_Signalling(signal.SIGINT))
    assert signal.getsignal(signal.SIGINT) is before
    assert (newest_checkpoint(tmp_path / "stopped") or tmp_path).name == "step-00000007"
    assert loop.StopRequest().heard is None
