"""speculators' own trainer on what a run of ours was trained on, for a comparison of drafts."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from eagle3.draft.export import export_draft
from eagle3.draft.model import DraftModel
from eagle3.draft.provenance import Provenance, StatesOrigin
from eagle3.engine.peer_draft import peer_version
from eagle3.engine.peer_training import PeerRecipe, train_peer
from eagle3.errors import InputError, StoreError
from eagle3.store.durable import partial_path
from eagle3.training.distributed import Processes
from eagle3.training.samples import SampleSet
from eagle3.training.settings import make_config, read_settings
from eagle3.training.train import CONFIG, prepare_training

DRAFT = "draft"


@dataclass(frozen=True)
class PeerRun:
    """What to train: the samples, vocabulary, steps and schedule of the run in the folder `run`.

    `learning_rate` None is the run's, too; the rest is speculators' own.
    """

    run: Path
    out: Path
    learning_rate: float | None
    unroll_steps: int
    unroll_decay: float
    feed: str
    noise: float
    norm_before_residual: bool


@dataclass(frozen=True)
class PeerRunReport:
    """`tokens_per_s` counts the rows of the steps, the first step's compilation included."""

    version: str
    draft: Path
    steps: int
    loss: float
    seconds: float
    tokens_per_s: float


def train_peer_draft(request: PeerRun, device: torch.device) -> PeerRunReport:
    """Trains speculators' draft and exports it. Raises InputError and StoreError."""
    version = peer_version()
    if not version.startswith("0.3."):
        raise InputError(f"the trainer of speculators {version} is not known here, only 0.3's")
    path = request.run / CONFIG
    if not path.is_file():
        raise InputError(f"{request.run} is not the folder of a training: no {CONFIG} in it")
    _make_folder(request.out)
    settings = make_config(read_settings(path))
    if settings.data.follow:
        raise InputError(
            f"{request.run} followed a store that grew, whose samples come in another order now; "
            "give a training without --follow"
        )
    plan = prepare_training(settings, Processes(0, 1, device))
    config = plan.config
    draft_config = replace(plan.draft, norm_before_residual=request.norm_before_residual)
    recipe = PeerRecipe(
        draft=draft_config,
        target=plan.model,
        vocabulary=plan.vocabulary,
        steps=plan.steps,
        tokens_per_step=config.data.tokens_per_step,
        learning_rate=request.learning_rate or config.optimizer.learning_rate,
        warmup_steps=round(config.schedule.warmup * plan.steps),
        schedule="none" if config.schedule.schedule == "constant" else config.schedule.schedule,
        unroll_steps=request.unroll_steps,
        unroll_decay=request.unroll_decay,
        off_policy=request.feed == "true",
        noise=request.noise,
        seed=config.run.seed,
        readers=config.run.readers,
        save=partial_path(request.out),
    )
    try:
        trained = train_peer(recipe, _StoreSamples(plan.training), device)
    finally:
        # Its checkpoint, in the form that its loader does not read again (docs/export.md).
        shutil.rmtree(recipe.save, ignore_errors=True)
    draft = DraftModel(draft_config)
    ours = draft.state_dict()
    draft.load_state_dict({name: trained.weights[name] for name in ours})
    training = {"speculators": version, "steps": plan.steps, "run": str(request.run)}
    states = [StatesOrigin.of(plan.training.store)]
    export_draft(draft, request.out / DRAFT, Provenance(plan.model, states, training))
    return PeerRunReport(
        version=version,
        draft=request.out / DRAFT,
        steps=plan.steps,
        loss=trained.loss,
        seconds=trained.seconds,
        tokens_per_s=plan.steps * config.data.tokens_per_step / trained.seconds,
    )


def _make_folder(out: Path) -> None:
    """Makes `out`, or raises StoreError where it is no empty folder."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise StoreError(f"{out} is not empty; give another --out")
    except OSError as error:
        raise StoreError(f"cannot write to {out}: {error.strerror}; give another --out") from error


class _StoreSamples:
    """The samples of a store, as speculators' trainer asks for them."""

    def __init__(self, samples: SampleSet) -> None:
        self._samples = samples
        self.lengths: Sequence[int] = samples.lengths

    def read(self, number: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        sample, hidden_states_TLH = self._samples.store.read(self._samples.ids[number])
        return (
            torch.tensor(sample.input_ids),
            hidden_states_TLH,
            torch.tensor(sample.loss_mask, dtype=torch.bool),
        )
