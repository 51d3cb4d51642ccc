"""Two GPUs learn what one learns, and a training that was stopped goes on as if it had not been."""

from pathlib import Path

import pytest

from eagle3.training.checkpoint import newest_checkpoint
from tests.unit.training.started import curve, end, start
from tests.unit.training.tiny_run import make_world

# bf16 rounds each product; how it is split over GPUs decides which way.
NEAR = 2e-2
FLAGS = {"batches_per_step": 2, "tokens_per_step": 512, "log_every": 1}


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return make_world(tmp_path)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_the_curve_is_that_of_one_gpu(world: Path, parallel: str) -> None:
    together, alone = world / "together", world / "alone"
    end(start(world, 1, **FLAGS, out=str(alone), parallel=parallel))
    end(start(world, 2, **FLAGS, out=str(together), parallel=parallel))
    assert len(curve(alone)) == 12 + 4
    assert curve(alone)[-1] < 0.8 * curve(alone)[0]
    assert curve(together) == pytest.approx(curve(alone), rel=NEAR)


def test_a_training_that_sigterm_stopped_goes_on(world: Path) -> None:
    whole, parted = world / "whole", world / "parted"
    end(start(world, 1, **FLAGS, out=str(whole)))
    end(start(world, 1, "step 5/12", "15", **FLAGS, out=str(parted)), expected=143)
    stopped = newest_checkpoint(parted)
    assert stopped is not None
    assert stopped.name in ("step-00000005", "step-00000006")
    end(start(world, 1, **FLAGS, out=str(parted)))
    assert curve(parted) == pytest.approx(curve(whole), rel=NEAR)
