"""The one configuration of a training, typed, and the only place of its defaults.

Every field is a flag of the command (`learning_rate` is `--learning-rate`) and a key of a YAML
file, below the name of its group. The defaults are for a draft of a large target on GPUs.
"""

from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Meta


@dataclass(frozen=True)
class Help:
    """What --help says of a field, and of its default where that does not speak for itself.

    `free`: a resumed run may change it, because the weights do not depend on it.
    """

    words: str
    shown: str | None = None
    free: bool = False


Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
Below1 = Annotated[float, Meta(ge=0, lt=1)]


@dataclass(frozen=True)
class DataConfig:
    """What is learnt from, and in which portions."""

    # Free, because what was read from them is compared instead.
    store: Annotated[str, Help("States to train on: a folder that extract wrote.", free=True)] = (
        "./eagle3-out"
    )
    validation_store: Annotated[
        str | None,
        Help("States to validate with, in place of any of --store.", "none", free=True),
    ] = None
    validation_share: Annotated[
        Below1,
        Help(
            "Share of the samples held out for validation, by seed and sample; none where prepare "
            "has held out some."
        ),
    ] = 0.05
    validation_tokens: Annotated[
        Count, Help("Tokens of what is held out that a validation measures; all if no more.")
    ] = 500_000
    tokens_per_step: Annotated[
        Count, Help("Tokens of an optimizer step, all processes together.")
    ] = 8192
    batches_per_step: Annotated[
        Count | None,
        Help(
            "Packed batches of a step. A process takes its share of them one after the other, so "
            "that more of them need less memory.",
            "one a process",
        ),
    ] = None
    long: Annotated[
        Literal["split", "refuse"],
        Help("Samples longer than a batch: go on as a further document, or are an error."),
    ] = "split"
    follow: Annotated[
        bool,
        Help(
            "Train while extract still writes: one pass, in the order of its commits. None of "
            "--store validates."
        ),
    ] = False
    follow_timeout: Annotated[
        Positive, Help("Seconds without a new sample after which --follow gives up.", free=True)
    ] = 3600.0
    delete_after_use: Annotated[
        bool,
        Help(
            "With --follow: remove shards from --store that the newest checkpoint has behind it.",
            free=True,
        ),
    ] = False
    noise: Annotated[
        Amount, Help("Uniform noise from -X to X on the fused states, never on the teacher's.")
    ] = 0.0
    shuffle_states: Annotated[
        bool,
        Help("Give each row the fused states of another one: a floor, which evaluate takes."),
    ] = False


@dataclass(frozen=True)
class DraftShape:
    """What the draft is, beyond what the target decides."""

    draft_vocab: Annotated[
        Count, Help("Tokens that the draft can propose; all where the target has no more.")
    ] = 32000
    frequencies: Annotated[
        str | None,
        Help("Folder that prepare wrote, by whose counts they are chosen.", "count in --store"),
    ] = None
    train_head: Annotated[bool, Help("Train the head, too, which begins as the target's.")] = False
    norm_before_residual: Annotated[
        bool, Help("Begin the layer's residual stream behind the norm of the state, not before.")
    ] = False
    fp8: Annotated[
        bool, Help("Multiply in fp8 in the decoder layer, on a GPU that has it (Hopper on).")
    ] = False


@dataclass(frozen=True)
class UnrollConfig:
    """Training-time test: the draft is run on its own output so many times."""

    unroll_steps: Annotated[Count, Help("Tokens in a row that the draft learns to draft.")] = 7
    unroll_decay: Annotated[Positive, Help("Weight of each, relative to the one before.")] = 0.8
    feed: Annotated[
        Literal["true", "argmax"],
        Help("What is fed after the first: the true tokens, or the draft's own guesses."),
    ] = "true"


@dataclass(frozen=True)
class OptimizerConfig:
    """How a gradient becomes an update."""

    optimizer: Annotated[
        Literal["adamw", "muon"],
        Help("AdamW; or Muon for the layer's matrices, with AdamW for the rest."),
    ] = "adamw"
    learning_rate: Annotated[
        Positive, Help("Highest learning rate; Muon's is scaled to match AdamW's.")
    ] = 1e-4
    weight_decay: Annotated[Amount, Help("Decoupled weight decay.")] = 0.0
    beta1: Annotated[Below1, Help("Decay of AdamW's mean of gradients.")] = 0.9
    beta2: Annotated[Below1, Help("Decay of AdamW's mean of their squares.")] = 0.95
    clip: Annotated[Positive, Help("Largest norm of a step's gradient.")] = 0.5
    ema: Annotated[
        Below1,
        Help("Decay of a running mean of the weights, to validate and export in their place."),
    ] = 0.0


@dataclass(frozen=True)
class ScheduleConfig:
    """How long, and how the learning rate goes."""

    epochs: Annotated[Positive, Help("Passes over the data.")] = 10.0
    max_steps: Annotated[Count | None, Help("Optimizer steps, in place of --epochs.", "none")] = (
        None
    )
    warmup: Annotated[Share, Help("Share of the steps in which the learning rate rises.")] = 0.015
    schedule: Annotated[
        Literal["cosine", "linear", "constant"], Help("How the learning rate goes after that.")
    ] = "cosine"
    final_learning_rate: Annotated[Share, Help("Where it ends, as a share of the highest.")] = 0.0


@dataclass(frozen=True)
class RunConfig:
    """Where and how it runs."""

    out: Annotated[str, Help("Where checkpoints, metrics and the draft go.", free=True)] = (
        "./eagle3-draft"
    )
    model: Annotated[
        str | None,
        Help(
            "Target: a shipped model's name (smollm2) or the folder of a checkpoint.",
            "the one whose states they are",
            free=True,
        ),
    ] = None
    seed: Annotated[int, Meta(ge=0, lt=2**31), Help("Seed of all that is drawn by lot.")] = 0
    parallel: Annotated[
        Literal["ddp", "fsdp"],
        Help("Several processes: each holds all of the draft, or a part of it.", free=True),
    ] = "ddp"
    checkpoint_every: Annotated[
        Count, Help("Steps between checkpoints, each with a validation.", free=True)
    ] = 500
    keep_checkpoints: Annotated[
        Annotated[int, Meta(ge=2)], Help("Checkpoints to keep: the newest and the best.", free=True)
    ] = 2
    log_every: Annotated[Count, Help("Steps between lines of metrics.", free=True)] = 10
    track: Annotated[
        Literal["none", "tensorboard", "wandb", "trackio"],
        Help("Where metrics go besides metrics.jsonl.", free=True),
    ] = "none"
    readers: Annotated[Count, Help("Threads that read states.", free=True)] = 4
    html: Annotated[bool, Help("Write report.html, with the curves.", free=True)] = False
    export: Annotated[bool, Help("Export the draft at the end.", free=True)] = True


@dataclass(frozen=True)
class TrainConfig:
    """All groups. A field's name is unique over them."""

    data: DataConfig = field(default_factory=DataConfig)
    draft: DraftShape = field(default_factory=DraftShape)
    unroll: UnrollConfig = field(default_factory=UnrollConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def difference(self, other: "TrainConfig") -> str | None:
        """The first field that must be equal for a run to go on, and is not."""
        for key in KEYS.values():
            ours = getattr(getattr(self, key.group), key.name)
            theirs = getattr(getattr(other, key.group), key.name)
            if ours != theirs and not key.help.free:
                return f"{key.group}.{key.name} is {theirs} there and {ours} here"
        return None


@dataclass(frozen=True)
class Key:
    """A field of a group, by its name in YAML. `kind` is its type, without ranges and help."""

    group: str
    name: str
    kind: Any
    default: Any
    help: Help


GROUPS: dict[str, type] = get_type_hints(TrainConfig)
KEYS = {
    key.name: Key(
        group=group,
        name=key.name,
        kind=get_type_hints(kind)[key.name],
        default=key.default,
        help=next(
            part
            for part in get_type_hints(kind, include_extras=True)[key.name].__metadata__
            if isinstance(part, Help)
        ),
    )
    for group, kind in GROUPS.items()
    for key in fields(kind)
}
