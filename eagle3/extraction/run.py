"""Runs the planned samples through the target and commits what comes out."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from eagle3.errors import EngineError
from eagle3.extraction.batches import fill_batches
from eagle3.extraction.plan import ExtractionPlan
from eagle3.extraction.states import check_states
from eagle3.store.sample import Sample
from eagle3.store.writer import StoreWriter


class Extractor(Protocol):
    """What a run needs of the engine."""

    def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]: ...


def run_extraction(
    plan: ExtractionPlan,
    engine: Extractor,
    store: StoreWriter,
    max_tokens_per_step: int,
    on_commit: Callable[[Sequence[Sample]], None],
) -> None:
    """Extracts `plan.missing`, and commits batch by batch.

    `on_commit` is called with the samples of each batch once they are committed. An error names
    the sample and leaves all earlier batches committed.
    """
    for batch in fill_batches(plan.missing, max_tokens_per_step):
        states = engine.extract([sample.input_ids for sample in batch])
        if len(states) != len(batch):
            raise EngineError(
                f"the target gave states of {len(states)} samples for a batch of {len(batch)}, "
                f"the first being {plan.planned.places[batch[0].id]}"
            )
        for sample, hidden_states_TLH in zip(batch, states, strict=True):
            check_states(hidden_states_TLH, plan.capture_points, plan.planned.places[sample.id])
        for sample, hidden_states_TLH in zip(batch, states, strict=True):
            store.write(sample, hidden_states_TLH)
        store.commit()
        on_commit(batch)
