"""Runs the planned samples through the target and commits what comes out."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from eagle3.errors import EngineError
from eagle3.extraction.batches import fill_batches, fill_shards
from eagle3.extraction.plan import ExtractionPlan
from eagle3.extraction.request import ExtractionRequest
from eagle3.extraction.states import Fault, find_faults
from eagle3.store.sample import Sample
from eagle3.store.writer import StoreWriter

# A few unfit samples are an accident; more of them, and a larger share, are a broken target.
_MOST_UNFIT_SAMPLES = 20
_LARGEST_UNFIT_SHARE = 0.1


class Extractor(Protocol):
    """What a run needs of the engine."""

    def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]: ...


def run_extraction(
    plan: ExtractionPlan,
    request: ExtractionRequest,
    engine: Extractor,
    store: StoreWriter,
    on_batch: Callable[[Sequence[Sample]], None],
) -> None:
    """Extracts `plan.missing` batch by batch, and commits it shard by shard.

    `on_batch` is called with the samples of each batch once they are written. An error names
    the sample and leaves all earlier batches to be committed.
    """

    def size(sample: Sample) -> int:
        return plan.manifest.states_bytes(len(sample.input_ids))

    done = unfit = 0
    batches = fill_batches(plan.missing, request.max_tokens_per_step)
    for shard in fill_shards(batches, request.shard_bytes, size):
        store.begin([sample for batch in shard for sample in batch])
        for batch in shard:
            faults = _run_batch(plan, request, engine, store, batch)
            done += len(batch)
            unfit += len(faults)
            if unfit > max(_MOST_UNFIT_SAMPLES, _LARGEST_UNFIT_SHARE * done):
                raise EngineError(
                    f"the target's states of {unfit:,} of {done:,} samples are unfit, the last "
                    f"{faults[-1]}; check the checkpoint and its dtype"
                )
            on_batch(batch)
        store.commit()


def _run_batch(
    plan: ExtractionPlan,
    request: ExtractionRequest,
    engine: Extractor,
    store: StoreWriter,
    batch: Sequence[Sample],
) -> list[Fault]:
    """Returns the faults for which samples were set aside."""
    places = plan.planned.places
    token_ids = [sample.input_ids for sample in batch]
    states = engine.extract(token_ids)
    if len(states) != len(batch):
        raise EngineError(
            f"the target gave states of {len(states)} samples for a batch of {len(batch)}, "
            f"the first being {places[batch[0].id]}"
        )
    faults = find_faults(token_ids, states, plan.capture_points)
    if request.on_bad == "fail":
        for sample, fault in zip(batch, faults, strict=True):
            _fail_on(fault, places[sample.id])
    for sample, hidden_states_TLH, fault in zip(batch, states, faults, strict=True):
        if fault is None:
            store.write(sample, hidden_states_TLH)
        else:
            store.quarantine(sample, fault.kind, f"{places[sample.id]}: {fault}")
    return [fault for fault in faults if fault is not None]


def _fail_on(fault: Fault | None, place: str) -> None:
    if fault is not None:
        raise EngineError(
            f"{place}: the target's states are {fault}, so its batch was not stored; check the "
            "checkpoint and its dtype, or go on without such samples with --on-bad quarantine"
        )
