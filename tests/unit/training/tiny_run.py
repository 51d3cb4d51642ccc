"""A tiny target, a store of its states that can be learnt from, and trainings on it."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from eagle3.progress import Progress
from eagle3.store.manifest import DatasetIdentity, Manifest, SamplesIdentity, StackIdentity
from eagle3.store.sample import Sample, dataset_digest
from eagle3.store.writer import StoreWriter
from eagle3.target import identify_target
from eagle3.training.config import TrainConfig
from eagle3.training.distributed import Processes
from eagle3.training.settings import make_config, settings_of_flags
from eagle3.training.train import TrainReport, prepare_training, train_draft

VOCAB_SIZE = 32
# In two heads of 16, the least that flex attention takes on a GPU.
HIDDEN_SIZE = 32
NUM_LAYERS = 8
CAPTURE_POINTS = (2, 4, 5, NUM_LAYERS)
# A second thread costs more than a tensor of this size takes, and forks go without it.
torch.set_num_threads(1)
ALONE = Processes(0, 1, torch.device("cpu"))
_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": NUM_LAYERS,
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}


def make_target(folder: Path) -> Path:
    """A folder with config.json and the three tensors that a draft needs."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(_CONFIG))
    save_file(_weights(), folder / "model.safetensors")
    return folder


def make_store(
    folder: Path,
    target: Path,
    *,
    samples: int = 24,
    points: tuple[int, ...] = CAPTURE_POINTS,
    seed: int = 0,
) -> Path:
    """A shard of `samples` samples."""
    made = make_samples(samples, seed)
    with StoreWriter(folder, make_manifest(target, made, points)) as store:
        commit(store, made, points)
    return folder


def make_samples(samples: int, seed: int = 0) -> tuple[Sample, ...]:
    """Samples of 8 to 40 tokens, whose next token follows from the one before."""
    chance = random.Random(seed)
    return tuple(_make_sample(chance) for _ in range(samples))


def make_manifest(
    target: Path,
    samples: Sequence[Sample],
    points: tuple[int, ...] = CAPTURE_POINTS,
    held_out: Sequence[Sample] = (),
) -> Manifest:
    """That of a store which is complete with `samples`, of which `held_out` are some."""
    return Manifest(
        target=identify_target(target),
        tokenizer_sha256="b" * 64,
        dataset=DatasetIdentity(
            *_identify(samples), SamplesIdentity(*_identify(held_out)) if held_out else None
        ),
        stack=StackIdentity("cpu", "e" * 64, {"torch": "1"}, {}),
        capture_points=points,
        hidden_size=HIDDEN_SIZE,
    )


def _identify(samples: Sequence[Sample]) -> tuple[int, int, str]:
    tokens = sum(len(sample.input_ids) for sample in samples)
    return len(samples), tokens, dataset_digest(samples)


def commit(
    store: StoreWriter, samples: Sequence[Sample], points: tuple[int, ...] = CAPTURE_POINTS
) -> None:
    """One shard with the states of `samples`."""
    store.begin(samples)
    for sample in samples:
        store.write(sample, make_states(sample, points))
    store.commit()


def make_world(folder: Path) -> Path:
    """A folder with `target` and its `store`."""
    make_store(folder / "store", make_target(folder / "target"))
    return folder


def make_states(sample: Sample, points: tuple[int, ...] = CAPTURE_POINTS) -> torch.Tensor:
    """bf16 [T, L, H]: the token at the fused points, and what follows it at the last one."""
    weights = _weights()
    tokens_T = torch.tensor(sample.input_ids)
    now_TH = weights["model.embed_tokens.weight"][tokens_T]
    next_TH = weights["lm_head.weight"][_following(tokens_T)]
    fused = [now_TH * (place + 1) / 2 for place in range(len(points) - 1)]
    return torch.stack([*fused, 4 * next_TH], dim=1)


def tiny_config(folder: Path, **flags: Any) -> TrainConfig:
    """Twelve steps of 64 tokens; `flags` are keys of the configuration."""
    small = {
        "store": str(folder / "store"),
        "out": str(folder / "out"),
        "tokens_per_step": 64,
        "draft_vocab": 16,
        "unroll_steps": 3,
        "learning_rate": 0.01,
        "max_steps": 12,
        "validation_share": 0.2,
        "checkpoint_every": 4,
        "log_every": 2,
        "readers": 1,
    }
    return make_config(settings_of_flags(small | flags))


def run_training(
    config: TrainConfig, processes: Processes = ALONE, progress: Progress | None = None
) -> TrainReport | None:
    plan = prepare_training(config, processes)
    return train_draft(plan, processes, progress or Progress())


def into(config: TrainConfig, out: Path) -> TrainConfig:
    """The same training, into another folder."""
    return replace(config, run=replace(config.run, out=str(out)))


def _make_sample(chance: random.Random) -> Sample:
    length = chance.randint(8, 40)
    tokens = [chance.randrange(VOCAB_SIZE)]
    while len(tokens) < length:
        # Now and then another token comes than the target thinks.
        surprise = chance.random() < 0.1
        last = tokens[-1]
        tokens.append(
            chance.randrange(VOCAB_SIZE) if surprise else int(_following(torch.tensor(last)))
        )
    prompt = chance.randint(1, length // 2)
    return Sample(tuple(tokens), (0,) * prompt + (1,) * (length - prompt))


def _following(tokens: torch.Tensor) -> torch.Tensor:
    return (3 * tokens + 1) % VOCAB_SIZE


def _weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (VOCAB_SIZE, HIDDEN_SIZE)
    return {
        "model.embed_tokens.weight": torch.randn(shape, generator=generator).to(torch.bfloat16),
        "lm_head.weight": torch.randn(shape, generator=generator).to(torch.bfloat16),
        "model.norm.weight": torch.ones(HIDDEN_SIZE, dtype=torch.bfloat16),
    }
