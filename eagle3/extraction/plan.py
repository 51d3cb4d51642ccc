"""Everything that can be known, and refused, before the target is started."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from eagle3.engine.architecture import TargetArchitecture, read_architecture
from eagle3.engine.capture_points import capture_points_from_layers, default_capture_points
from eagle3.errors import InputError
from eagle3.extraction.disk import DiskPlan, plan_disk
from eagle3.extraction.request import ExtractionRequest
from eagle3.extraction.samples import PlannedSamples, read_samples
from eagle3.extraction.stack import running_stack
from eagle3.preparation.target import tokenizer_digest
from eagle3.store.manifest import DatasetIdentity, Manifest, SamplesIdentity
from eagle3.store.plan import Holdings, can_mark, plan_store
from eagle3.store.row_format import BFLOAT16, FLOAT8
from eagle3.store.sample import Sample, dataset_digest
from eagle3.target import identify_target

_DEFAULT_MAX_MODEL_LEN = 2048


@dataclass(frozen=True)
class ExtractionPlan:
    """`missing` are the samples of this run's part that are not done yet.

    `store` is the folder in the output folder to which this run writes, and `done` what lies in
    all of the output folder. `held_out` are the ids of the samples that are marked there.
    """

    architecture: TargetArchitecture
    capture_points: tuple[int, ...]
    max_model_len: int
    planned: PlannedSamples
    manifest: Manifest
    store: Path
    done: Holdings
    missing: tuple[Sample, ...]
    held_out: frozenset[str]
    disk: DiskPlan


def plan_extraction(request: ExtractionRequest) -> ExtractionPlan:
    """Reads the target's configuration and all of the data, and looks into the output folder.

    Writes nothing. Raises InputError for a wrong model, layer or line of data, and StoreError
    where the output folder cannot take what is to come.
    """
    architecture = read_architecture(request.model)
    capture_points = choose_capture_points(request, architecture)
    max_model_len = choose_max_model_len(request, architecture)
    target = identify_target(request.model)
    planned = read_samples(
        request.data,
        request.model,
        limit=request.limit,
        vocab_size=architecture.vocab_size,
        max_model_len=max_model_len,
        truncate=request.truncate,
        trust_remote_code=request.trust_remote_code,
    )
    manifest = Manifest(
        target=target,
        tokenizer_sha256=tokenizer_digest(request.model),
        dataset=_identify_dataset(planned),
        stack=running_stack(),
        capture_points=capture_points,
        hidden_size=architecture.hidden_size,
        dtype=FLOAT8 if request.fp8_states else BFLOAT16,
        command=request.command,
    )
    held_out = planned.held_out
    if held_out and not can_mark(request.out, request.part):
        held_out = frozenset[str]()
        manifest = manifest.with_held_out(None)
    done = plan_store(request.out, manifest, request.part)
    missing = tuple(
        sample
        for sample in planned.samples
        if request.part.holds(sample.id) and sample.id not in done
    )
    store = request.part.folder(request.out)
    disk = plan_disk(
        missing,
        manifest,
        store,
        request.shard_bytes,
        begun=any(sample.id in done for sample in planned.samples),
        budget=request.disk_budget,
    )
    return ExtractionPlan(
        architecture,
        capture_points,
        max_model_len,
        planned,
        manifest,
        store,
        done,
        missing,
        held_out,
        disk,
    )


def _identify_dataset(planned: PlannedSamples) -> DatasetIdentity:
    held_out = [sample for sample in planned.samples if sample.id in planned.held_out]
    return DatasetIdentity(
        **asdict(_identify(planned.samples)), held_out=_identify(held_out) if held_out else None
    )


def _identify(samples: Sequence[Sample]) -> SamplesIdentity:
    return SamplesIdentity(
        sha256=dataset_digest(samples),
        samples=len(samples),
        tokens=sum(len(sample.input_ids) for sample in samples),
    )


def choose_capture_points(
    request: ExtractionRequest, architecture: TargetArchitecture
) -> tuple[int, ...]:
    """The capture points asked for, else the default ones. Raises InputError."""
    if request.layers is None:
        return default_capture_points(architecture.num_layers)
    return capture_points_from_layers(
        request.layers, request.layer_convention, architecture.num_layers
    )


def choose_max_model_len(request: ExtractionRequest, architecture: TargetArchitecture) -> int:
    """The longest sample in tokens. Raises InputError for more than the target can take."""
    possible = architecture.max_position_embeddings
    if request.max_model_len is None:
        return min(_DEFAULT_MAX_MODEL_LEN, possible or _DEFAULT_MAX_MODEL_LEN)
    if possible is not None and request.max_model_len > possible:
        raise InputError(
            f"--max-model-len {request.max_model_len:,} is more than the {possible:,} positions "
            "of the target; lower it"
        )
    return request.max_model_len
