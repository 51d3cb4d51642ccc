"""Everything that can be known, and refused, before the first step."""

import hashlib
import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from eagle3.draft.config import DraftConfig, draft_config_for
from eagle3.draft.served_config import config_json
from eagle3.draft.vocabulary import VocabularyMap, choose_vocabulary, coverage
from eagle3.engine.architecture import read_architecture
from eagle3.errors import InputError
from eagle3.preparation.dataset import VOCABULARY, read_description
from eagle3.preparation.vocabulary import read_frequencies
from eagle3.store.reader import StoreReader
from eagle3.target import find_target, identify_target
from eagle3.training.config import TrainConfig
from eagle3.training.data import packed_documents
from eagle3.training.order import EpochStart, epoch_order
from eagle3.training.packing import Packed, pack
from eagle3.training.samples import HeldOutBy, SampleSet, follow_samples, split_samples


@dataclass(frozen=True)
class TrainingPlan:
    """What will be trained on what. `config` is resolved: nothing in it is left open.

    `validation` has all samples that are held out to validate with, as `held_out_by` says.
    """

    config: TrainConfig
    model: Path
    training: SampleSet
    validation: SampleSet
    held_out_by: HeldOutBy | None
    draft: DraftConfig
    vocabulary: VocabularyMap
    coverage: float

    @property
    def capacity(self) -> int:
        """Rows of a batch."""
        return self.config.data.tokens_per_step // self.batches_per_step

    @property
    def follows(self) -> bool:
        """Whether samples come while it runs: then `training` has none of them."""
        return self.config.data.follow

    @property
    def batches_per_step(self) -> int:
        batches = self.config.data.batches_per_step
        assert batches is not None, "a plan's configuration is resolved"
        return batches

    def check_length(self, length: int) -> None:
        """Raises InputError where a sample of `length` tokens is to be refused."""
        if self.config.data.long == "refuse" and length > self.capacity:
            raise InputError(
                f"a sample has {length:,} tokens and a batch {self.capacity:,}; raise "
                "--tokens-per-step, lower --batches-per-step, or give --long split"
            )

    @cached_property
    def measured(self) -> SampleSet:
        """The samples of each validation: the first of those held out, of which at least one.

        Their ids are hashes, so that the first ones are as good as drawn by lot. A twentieth of
        millions of samples takes longer to measure than the steps between two validations.
        """
        ends = list(itertools.accumulate(self.validation.lengths))
        count = bisect_right(ends, self.config.data.validation_tokens)
        return SampleSet(self.validation.store, self.validation.ids[: max(1, count)])

    @cached_property
    def data_sha256(self) -> str:
        """Names samples and draft vocabulary: a run goes on with the same ones only."""
        dataset = self.training.store.manifest.dataset
        digest = hashlib.sha256((dataset.sha256 if self.follows else self.training.digest).encode())
        if self.follows and dataset.held_out:
            digest.update(dataset.held_out.sha256.encode())
        digest.update(self.validation.digest.encode())
        digest.update(self.vocabulary.d2t_D.numpy().tobytes())
        return digest.hexdigest()

    @cached_property
    def batches_per_epoch(self) -> int:
        """Batches of the first epoch; those of others differ by a few. Padding is not known yet
        where a growing store is followed."""
        if self.follows:
            dataset = self.training.store.manifest.dataset
            held_out = dataset.held_out.tokens if dataset.held_out else 0
            return -(-(dataset.tokens - held_out) // self.capacity)
        order = epoch_order(len(self.training.ids), self.config.run.seed, 0)
        return sum(1 for _ in pack(order, self.training.lengths, self.capacity))

    @cached_property
    def steps(self) -> int:
        schedule = self.config.schedule
        if schedule.max_steps is not None:
            return schedule.max_steps
        epochs = 1 if self.follows else schedule.epochs
        return max(1, round(epochs * self.batches_per_epoch / self.batches_per_step))


def plan_training(config: TrainConfig) -> TrainingPlan:
    """Reads the store's index, the target's configuration and the token counts.

    All paths of `config` are absolute. Writes nothing. Raises InputError and StoreError for
    whatever cannot work.
    """
    if config.data.delete_after_use and not config.data.follow:
        raise InputError("--delete-after-use goes with --follow, which reads each shard once")
    store = StoreReader(Path(config.data.store))
    folder = _target_folder(store, Path(config.run.model) if config.run.model else None)
    fused = _fused_points(store, folder)
    data = config.data
    if data.tokens_per_step % (data.batches_per_step or 1):
        raise InputError(
            f"--tokens-per-step {data.tokens_per_step:,} is not a multiple of --batches-per-step "
            f"{data.batches_per_step}"
        )
    validation_store = Path(data.validation_store) if data.validation_store else None
    if data.follow:
        split = follow_samples(store, validation_store)
    else:
        split = split_samples(store, validation_store, config.run.seed, data.validation_share)
    vocab_size = read_architecture(folder).vocab_size
    frequencies_V = _frequencies(config, store, split.training, vocab_size)
    vocabulary = choose_vocabulary(frequencies_V, min(config.draft.draft_vocab, vocab_size))
    plan = TrainingPlan(
        config=config,
        model=folder,
        **split._asdict(),
        draft=draft_config_for(
            folder,
            len(vocabulary.d2t_D),
            fused,
            norm_before_residual=config.draft.norm_before_residual,
        ),
        vocabulary=vocabulary,
        coverage=coverage(frequencies_V, vocabulary),
    )
    # Before the training, not after it: what vLLM could not serve.
    config_json(plan.draft, folder)
    for length in plan.training.lengths + plan.validation.lengths:
        plan.check_length(length)
    return plan


def _target_folder(store: StoreReader, model: Path | None) -> Path:
    """The target's folder, if it is the one that the states are of."""
    target = store.manifest.target
    path = str(model or target.path)
    folder = find_target(replace(target, path=path))
    if folder is None:
        raise InputError(
            f"the target of the states in {store.folder} is gone from {path}; say where it is "
            "with --model"
        )
    if identify_target(folder) != target:
        raise InputError(
            f"the states in {store.folder} are not of the model in {folder}: its configuration "
            "or its weights differ from the manifest's; give --model, or extract again"
        )
    return folder


def _fused_points(store: StoreReader, model: Path) -> tuple[int, ...]:
    points, layers = store.manifest.capture_points, read_architecture(model).num_layers
    if len(points) != 4 or points[-1] != layers:
        raise InputError(
            f"the states in {store.folder} are of the points {', '.join(map(str, points))}; a "
            f"draft needs three, and {layers} as the last: extract with --layers A,B,C,{layers - 1}"
        )
    return points[:-1]


def _frequencies(
    config: TrainConfig, store: StoreReader, training: SampleSet, vocab_size: int
) -> torch.Tensor:
    if config.draft.frequencies is None and config.data.follow:
        if config.draft.draft_vocab < vocab_size:
            raise InputError(
                f"--follow cannot count which {config.draft.draft_vocab:,} tokens are the most "
                "frequent before all samples are there: give the folder that prepare wrote as "
                f"--frequencies, or all {vocab_size:,} tokens with --draft-vocab {vocab_size}"
            )
        return torch.zeros(vocab_size, dtype=torch.int64)
    if config.draft.frequencies is None:
        return training.token_frequencies(vocab_size)
    folder = Path(config.draft.frequencies)
    digest = read_description(folder)["sha256"]
    counts_V = torch.from_numpy(read_frequencies(folder / VOCABULARY, digest).counts)
    if len(counts_V) != vocab_size:
        raise InputError(
            f"{folder} counts {len(counts_V):,} tokens and the target of {store.folder} has "
            f"{vocab_size:,}; prepare the data for this target"
        )
    return counts_V


def batches_from(
    plan: TrainingPlan, batch: int, start: EpochStart, on_epoch: Callable[[EpochStart], None]
) -> Iterator[Packed]:
    """The documents of each batch of the run, from number `batch` on; each epoch is told.

    Those between it and `start`, the beginning of its epoch or of an earlier one, are packed, too.
    """
    seed = plan.config.run.seed
    stream = packed_documents(plan.training, plan.capacity, seed, start, on_epoch)
    for _ in itertools.islice(stream, batch - start.batches):
        pass
    return stream
