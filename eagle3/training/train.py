"""The whole of a training, from the configuration to the exported draft."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from eagle3.draft.export import export_draft
from eagle3.draft.fp8 import check_fp8
from eagle3.draft.model import DraftModel
from eagle3.draft.provenance import Provenance, StatesOrigin, running_commit
from eagle3.draft.target_weights import TargetWeights, read_target_weights
from eagle3.errors import InputError, StoreError
from eagle3.progress import Progress
from eagle3.store.durable import locked, sync_folder, write_file
from eagle3.training.checkpoint import (
    RunState,
    best_checkpoint,
    check_resumable,
    newest_checkpoint,
    read_state,
    read_tensors,
)
from eagle3.training.commit_order import CommitOrder
from eagle3.training.config import TrainConfig
from eagle3.training.distributed import Processes
from eagle3.training.following import Following, await_store
from eagle3.training.log import METRICS, Log, read_records
from eagle3.training.loop import Loop
from eagle3.training.plan import TrainingPlan, plan_training
from eagle3.training.report import write_report
from eagle3.training.samples import HeldOutBy
from eagle3.training.settings import write_config
from eagle3.training.teacher import Teacher
from eagle3.training.trackers import check_tracker, open_tracker
from eagle3.training.trainer import MEAN, OPTIMIZER, WEIGHTS, Trainer

CONFIG = "config.yaml"
REPORT = "report.html"
DRAFT = "draft"


@dataclass(frozen=True)
class TrainReport:
    """What lies in `out` now.

    `draft` is the exported folder, None without export; it holds the weights after `step` steps,
    the best of the checkpoints. `before` and `after` are simulated acceptance lengths: of the
    untrained draft and of that checkpoint, on held-out samples (`validated`); or, where none are
    held out, in the first and the last record, on the samples trained on. They are None where their
    records are lost. `held_out_by` says what chose the held-out samples. `tokens_per_s` and
    `waited` are means over this folder's records.
    """

    out: Path
    draft: Path | None
    steps: int
    step: int
    before: float | None
    after: float | None
    validated: bool
    held_out_by: HeldOutBy | None
    tokens_per_s: float
    waited: float


def prepare_training(
    config: TrainConfig, processes: Processes, progress: Progress | None = None
) -> TrainingPlan:
    """Resolves what `config` leaves open, and checks all that can be checked before the start.

    Writes nothing. A store that is to be followed is waited for. Raises InputError and StoreError.
    """
    check_tracker(config.run.track)
    if config.draft.fp8:
        check_fp8(processes.device)
    batches = config.data.batches_per_step or processes.count
    if batches % processes.count:
        raise InputError(
            f"{processes.count} processes cannot share {batches} batches a step: make "
            "--batches-per-step a multiple"
        )
    config = replace(config, data=replace(config.data, batches_per_step=batches))
    progress = progress or Progress()
    if config.data.follow:
        await_store(Path(config.data.store), config.data.follow_timeout, progress)
    with progress.reminding("reading the store's index and counting tokens"):
        return plan_training(config)


def train_draft(plan: TrainingPlan, processes: Processes, progress: Progress) -> TrainReport | None:
    """Trains from where the output folder stands to the end, and exports.

    Returns the report in the first process and None in others. Raises InputError, StoreError,
    StoppedError (see stop.py), StalledError (see following.py), and Eagle3Error where the loss is
    not finite.
    """
    out = Path(plan.config.run.out)
    state = RunState(plan.config, plan.data_sha256, step=0)
    checkpoint = newest_checkpoint(out)
    if checkpoint is not None:
        there = read_state(checkpoint)
        check_resumable(checkpoint, there, state)
        state = replace(there, config=plan.config)
        progress.say(f"out: going on from step {state.step:,}")
    with _own_folder(out, plan.config) if processes.is_first else nullcontext():
        return _train(plan, state, checkpoint, processes, progress)


def _train(
    plan: TrainingPlan,
    state: RunState,
    checkpoint: Path | None,
    processes: Processes,
    progress: Progress,
) -> TrainReport | None:
    """`train_draft` from `checkpoint`, where there is one, and `state`."""
    out = Path(plan.config.run.out)
    # Now: by the end of a long training the checkout may be of another one.
    commit = running_commit()
    with progress.reminding("reading the target's embeddings and head"):
        weights = read_target_weights(plan.model)
    trainer = _new_trainer(plan, weights, processes)
    if checkpoint is not None:
        trainer.load_state({name: read_tensors(checkpoint, name) for name in _groups(plan)})
    following = None
    if plan.follows:
        order = CommitOrder(out)
        if processes.is_first and checkpoint is None:
            order.begin()
        following = Following(plan, order, processes, progress)
    if not processes.is_first:
        Loop(plan, trainer, state, None, processes, following).run()
        return None
    tracker = open_tracker(plan.config.run.track, out, asdict(plan.config), progress)
    try:
        log = Log(out, progress, plan.steps, tracker)
        log.begin(state.step if checkpoint is not None else None)
        Loop(plan, trainer, state, log, processes, following).run()
    finally:
        tracker.close()
    with progress.reminding("exporting the draft"):
        return _finish(plan, out, weights, commit)


def _new_trainer(plan: TrainingPlan, weights: TargetWeights, processes: Processes) -> Trainer:
    try:
        draft = new_draft(plan, weights).to(processes.device)
        if plan.config.draft.fp8:
            draft.multiply_in_fp8()
        teacher = Teacher.of(weights, plan.vocabulary).to(processes.device)
        return Trainer(plan, draft, teacher, processes)
    except torch.OutOfMemoryError:
        raise InputError(
            "the draft's weights do not fit into what is free of the GPU's memory: end what else "
            "uses it, give --parallel fsdp, or lower --draft-vocab; --dry-run tells what is needed"
        ) from None


def new_draft(plan: TrainingPlan, weights: TargetWeights) -> DraftModel:
    """The untrained draft, the same for the same seed, on the CPU."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.config.run.seed)
        draft = DraftModel(plan.draft)
    draft.take_from_target(weights, plan.vocabulary, train_head=plan.config.draft.train_head)
    return draft


def _groups(plan: TrainingPlan) -> list[str]:
    return [WEIGHTS, OPTIMIZER] + ([MEAN] if plan.config.optimizer.ema else [])


@contextmanager
def _own_folder(out: Path, config: TrainConfig) -> Generator[None]:
    """Makes the output folder, or takes the one of an earlier run, and notes the configuration.

    For as long as the context lasts no other training can have it. Raises StoreError.
    """
    with ExitStack() as held:
        try:
            if out.exists() and not (out / CONFIG).exists() and any(out.iterdir()):
                raise StoreError(f"{out} is not empty and holds no run; give another --out")
            out.mkdir(parents=True, exist_ok=True)
            held.enter_context(locked(out))
            write_file(out / CONFIG, write_config(config).encode())
            sync_folder(out)
        except OSError as error:
            raise StoreError(
                f"cannot write to {out}: {error.strerror}; give another --out"
            ) from error
        yield


def _finish(
    plan: TrainingPlan, out: Path, weights: TargetWeights, commit: str | None
) -> TrainReport:
    records = read_records(out / METRICS)
    newest = newest_checkpoint(out)
    assert newest is not None, "the last step is saved"
    checkpoint = best_checkpoint(out) or newest
    state = read_state(checkpoint)
    validated = bool(plan.validation.ids)
    kind = "validation" if validated else "train"
    lengths = {r["step"]: r["acceptance_length"] for r in records if r["kind"] == kind}
    trained = [record for record in records if record["kind"] == "train"]
    report = TrainReport(
        out=out,
        draft=out / DRAFT if plan.config.run.export else None,
        steps=read_state(newest).step,
        step=state.step,
        before=lengths.get(0 if validated else min(lengths, default=0)),
        after=state.acceptance if validated else lengths.get(state.step),
        validated=validated,
        held_out_by=plan.held_out_by,
        tokens_per_s=_mean(trained, "tokens_per_s"),
        waited=_mean(trained, "waited"),
    )
    if report.draft is not None:
        draft = new_draft(plan, weights)
        group = MEAN if plan.config.optimizer.ema else WEIGHTS
        draft.load_state_dict(read_tensors(checkpoint, group), strict=False)
        export_draft(draft, report.draft, _provenance(plan, report, commit))
    if plan.config.run.html:
        write_report(out / REPORT, out.name, summary(report), write_config(plan.config), records)
    return report


def summary(report: TrainReport) -> str:
    """One sentence on what the training was worth."""
    on, first = "held-out samples", "untrained"
    last = f"after step {report.step:,} of {report.steps:,}"
    if not report.validated:
        on, first = "the samples trained on", "in the first steps"
        last = f"in the last of {report.steps:,}"
    figures = ((report.before, first), (report.after, last))
    said = [f"{length:.3f} {when}" for length, when in figures if length is not None]
    return f"simulated acceptance length on {on}: {', '.join(said) or 'its records are lost'}"


def _provenance(plan: TrainingPlan, report: TrainReport, commit: str | None) -> Provenance:
    training: dict[str, Any] = {
        "config": asdict(plan.config),
        "step": report.step,
        "held_out_by": report.held_out_by,
        "simulated_acceptance_length": report.after,
    }
    states = [StatesOrigin.of(plan.training.store)]
    return Provenance(plan.model, states, training, commit=commit)


def _mean(records: list[dict[str, Any]], key: str) -> float:
    return sum(record[key] for record in records) / max(1, len(records))
