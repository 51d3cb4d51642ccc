"""Two processes learn what one learns."""

from pathlib import Path

import pytest
import torch

from eagle3.errors import InputError
from eagle3.store.writer import StoreWriter
from eagle3.training.checkpoint import newest_checkpoint, read_tensors
from eagle3.training.distributed import Processes, joined_processes
from eagle3.training.log import METRICS, read_records
from eagle3.training.train import prepare_training
from tests.unit.training.started import curve, end, start
from tests.unit.training.tiny_run import (
    ALONE,
    VOCAB_SIZE,
    commit,
    make_manifest,
    make_samples,
    make_target,
    make_world,
    tiny_config,
)

FLAGS = {"batches_per_step": 2, "log_every": 1, "noise": 0.05, "ema": 0.9}


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return make_world(tmp_path)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_the_curve_is_that_of_one_process(world: Path, parallel: str) -> None:
    together, alone = world / "together", world / "alone"
    # Two batches a process: the gradients of the first are kept until those of the second.
    flags = FLAGS | {"batches_per_step": 4, "tokens_per_step": 256, "train_head": True}
    running = start(world, 2, **flags, out=str(together), parallel=parallel)
    end(start(world, 1, **flags, out=str(alone), parallel=parallel))
    end(running)
    assert len(curve(alone)) == 12 + 4
    assert curve(together) == pytest.approx(curve(alone), rel=1e-4)
    for group in ("draft", "mean", "optimizer"):
        theirs, ours = (
            read_tensors(newest_checkpoint(out) or out, group) for out in (together, alone)
        )
        assert theirs.keys() == ours.keys()
        for name, value in ours.items():
            assert theirs[name].shape == value.shape
            assert (theirs[name] - value).abs().max() < 1e-2 * value.abs().max() + 1e-6, name


def test_muon_learns_alike_from_parts_of_its_matrices(world: Path) -> None:
    flags = {"batches_per_step": 2, "log_every": 1, "optimizer": "muon"}
    together, alone = world / "together", world / "alone"
    running = start(world, 2, **flags, out=str(together), parallel="fsdp")
    end(start(world, 1, **flags, out=str(alone)))
    end(running)
    # It iterates in bf16, which rounds sums over parts otherwise.
    assert curve(together) == pytest.approx(curve(alone), rel=5e-3)
    assert curve(alone)[-1] < 0.5 * curve(alone)[0]


def test_a_sharded_run_goes_on_from_its_checkpoint(world: Path) -> None:
    whole, parted = world / "whole", world / "parted"
    running = start(world, 2, **FLAGS, out=str(whole), parallel="fsdp")
    # SIGTERM (15) to the first process stops both after the same step.
    end(start(world, 2, "step 5/12", "15", **FLAGS, out=str(parted), parallel="fsdp"), expected=143)
    stopped = newest_checkpoint(parted)
    assert stopped is not None
    assert stopped.name in ("step-00000005", "step-00000006")
    end(start(world, 2, **FLAGS, out=str(parted), parallel="fsdp"))
    end(running)
    assert curve(parted) == pytest.approx(curve(whole), rel=1e-5)


def test_a_growing_store_is_followed_alike(tmp_path: Path) -> None:
    target, samples = make_target(tmp_path / "target"), make_samples(60)
    kept_apart = samples[::10]
    held_out = {sample.id for sample in kept_apart}
    manifest = make_manifest(target, samples, held_out=kept_apart)
    follow = {"follow": True, "draft_vocab": VOCAB_SIZE, "max_steps": None, "follow_timeout": 200}
    flags = FLAGS | follow
    alone, together = tmp_path / "alone", tmp_path / "together"
    with StoreWriter(tmp_path / "store", manifest, held_out) as store:
        commit(store, samples[:40])
        # SIGTERM (15) to one of two that wait ends both.
        waiting = "all 40 of 60 samples are taken: waiting for extraction ..."
        stopped = start(tmp_path, 2, waiting, "15", out=str(together), **flags)
        end(stopped, expected=143)
        assert newest_checkpoint(together) is not None
        running = start(tmp_path, 2, out=str(together), delete_after_use=True, **flags)
        said = running[0].stderr
        assert said is not None
        assert any(line.startswith(waiting) for line in said)
        commit(store, samples[40:])
        end(running)
        assert not list((tmp_path / "store").glob("*.safetensors*"))
    (tmp_path / "store").rename(tmp_path / "emptied")
    with StoreWriter(tmp_path / "store", manifest, held_out) as store:
        commit(store, samples)
    end(start(tmp_path, 1, out=str(alone), **flags))
    seen = sum(len(sample.input_ids) for sample in samples if sample.id not in held_out)
    for out in (alone, together):
        assert read_records(out / METRICS)[-1]["tokens"] == seen
    assert curve(together) == pytest.approx(curve(alone), rel=1e-4)


def test_batches_must_be_shared_evenly(world: Path) -> None:
    two = Processes(0, 2, ALONE.device)
    assert prepare_training(tiny_config(world), two).batches_per_step == 2
    with pytest.raises(InputError, match="2 processes cannot share 3 batches a step"):
        prepare_training(tiny_config(world, batches_per_step=3, tokens_per_step=96), two)


def test_processes_that_cannot_meet_are_told() -> None:
    with (
        pytest.raises(InputError, match="1/2 has nowhere to meet the others: set MASTER_ADDR"),
        joined_processes({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}),
    ):
        pass


@pytest.mark.parametrize(
    ("environment", "gpus", "expected"),
    [
        ({}, 8, 0),
        ({"LOCAL_RANK": "3"}, 8, 3),
        ({"SLURM_LOCALID": "3"}, 8, 3),
        # srun --gpus-per-task 1
        ({"SLURM_LOCALID": "3"}, 1, 0),
    ],
)
def test_each_process_has_its_own_gpu(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], gpus: int, expected: int
) -> None:
    taken: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    with joined_processes(environment) as processes:
        assert taken == [processes.device] == [torch.device("cuda", expected)]


@pytest.mark.parametrize("gpus", [1, 2])
def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with (
        pytest.raises(InputError, match=f"process 2 of this machine has no GPU: it has {gpus}; "),
        joined_processes({"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "2"}),
    ):
        pass
