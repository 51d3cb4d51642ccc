"""speculators 0.3.0's own trainer, run on states of ours.

Its data pipeline (`train/data.py`, `train/distributed_batch_sampler.py`) shifts, packs and pads,
its `Trainer` steps and saves. Only the reading of a sample is ours: 0.3.0 has files of pickles.
"""

import itertools
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from speculators.models.eagle3 import Eagle3DraftModel
from speculators.train.data import create_collate_fn, shift_batch
from speculators.train.distributed_batch_sampler import MultipackDistributedBatchSamplerV2
from speculators.train.noise_transforms import AddUniformNoise
from speculators.train.trainer import Trainer, TrainerConfig
from torch.utils.data import DataLoader, Dataset, Sampler

from eagle3.draft.config import DraftConfig
from eagle3.draft.vocabulary import VocabularyMap
from eagle3.engine.peer_draft import speculator_config

# 0.3.0's script puts its noise on the teacher's states, too.
_NOISY = ("hidden_states", "verifier_last_hidden_states")
_METRICS = "speculators.metrics"


class PeerSamples(Protocol):
    """The samples to train on, by number."""

    lengths: Sequence[int]

    def read(self, number: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Token ids [T], states bf16 [T, L, H] of the three fused points and the last, mask [T]."""


@dataclass(frozen=True)
class PeerRecipe:
    """What is trained, and how; a step has up to `tokens_per_step` tokens.

    `off_policy`: later unrolled steps are fed the true tokens, not the draft's own. `noise` is
    uniform, on the fused states and on the teacher's. `save` is a folder for its checkpoint.
    """

    draft: DraftConfig
    target: Path
    vocabulary: VocabularyMap
    steps: int
    tokens_per_step: int
    learning_rate: float
    warmup_steps: int
    schedule: str
    unroll_steps: int
    unroll_decay: float
    off_policy: bool
    noise: float
    seed: int
    readers: int
    save: Path


@dataclass(frozen=True)
class PeerTrained:
    """The weights by name, in fp32 on the CPU, the last step's loss, and the seconds of all."""

    weights: dict[str, torch.Tensor]
    loss: float
    seconds: float


def train_peer(recipe: PeerRecipe, samples: PeerSamples, device: torch.device) -> PeerTrained:
    """Trains as 0.3.0 does: fp32, AdamW, its head with the rest; compiled unless Dynamo is off."""
    torch.manual_seed(recipe.seed)
    config = speculator_config(recipe.draft, recipe.unroll_steps, str(recipe.target))
    vocabulary = recipe.vocabulary
    model: Any = Eagle3DraftModel(config, vocabulary.t2d_V, vocabulary.d2t_D)
    last = _LastMetrics()
    call = {
        "ttt_steps": recipe.unroll_steps,
        "ttt_step_loss_decay": recipe.unroll_decay,
        "use_off_policy_tokens": recipe.off_policy,
    }
    options: dict[str, Any] = {
        "lr": recipe.learning_rate,
        "num_epochs": 1,
        "save_path": str(recipe.save),
        "local_rank": device.index or 0 if device.type == "cuda" else "cpu",
        "train_call_kwargs": call,
        "scheduler_type": recipe.schedule,
        "scheduler_warmup_steps": recipe.warmup_steps,
        "scheduler_total_steps": recipe.steps,
    }
    logger = logging.getLogger(_METRICS)
    logger.setLevel(logging.INFO)
    logger.addHandler(last)
    try:
        began = time.monotonic()
        Trainer(model, TrainerConfig(**options), _loader(recipe, samples, device)).run_training()
        seconds = time.monotonic() - began
    finally:
        logger.removeHandler(last)
    weights = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    return PeerTrained(weights, last.loss, seconds)


def _loader(recipe: PeerRecipe, samples: PeerSamples, device: torch.device) -> DataLoader[Any]:
    size = recipe.tokens_per_step
    # The shift drops a row of each sample.
    lengths = [length - 1 for length in samples.lengths]
    packing = MultipackDistributedBatchSamplerV2(size, lengths, 1, 0, seed=recipe.seed)
    workers = recipe.readers if device.type == "cuda" else 0
    return DataLoader(
        _ShiftedSamples(samples, recipe.noise),
        batch_sampler=_SomeBatches(packing, recipe.steps),
        collate_fn=create_collate_fn(size),
        num_workers=workers,
        prefetch_factor=4 if workers else None,
        pin_memory=device.type == "cuda",
    )


class _ShiftedSamples(Dataset[dict[str, Any]]):
    """What `Eagle3SampleFileDataset` makes of its files."""

    def __init__(self, samples: PeerSamples, noise: float) -> None:
        self._samples = samples
        self._noise = AddUniformNoise(noise, _NOISY) if noise else None

    def __getitem__(self, index: int) -> dict[str, Any]:
        # Its sampler gives numbers of numpy.
        input_ids_T, hidden_states_TLH, loss_mask_T = self._samples.read(int(index))
        states_TLH = hidden_states_TLH.to(torch.float32)
        data = {
            "hidden_states": states_TLH[:, :-1].flatten(1),
            "input_ids": input_ids_T,
            "verifier_last_hidden_states": states_TLH[:, -1],
            "loss_mask": loss_mask_T.to(torch.int64),
            "lengths": torch.tensor([len(input_ids_T)]),
            "position_ids": torch.arange(len(input_ids_T)),
        }
        return shift_batch(self._noise(data) if self._noise else data)


class _SomeBatches(Sampler[Any]):
    """The first `steps` batches of its epochs, one epoch after the other."""

    def __init__(self, packing: MultipackDistributedBatchSamplerV2, steps: int) -> None:
        self._packing = packing
        self._steps = steps

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(self._endless(), self._steps)

    def _endless(self) -> Iterator[Any]:
        for epoch in itertools.count():
            self._packing.set_epoch(epoch)
            yield from self._packing


class _LastMetrics(logging.Handler):
    """Keeps the loss that the trainer logged last."""

    loss = float("nan")

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, dict) and "train" in record.msg:
            self.loss = record.msg["train"]["loss"]
