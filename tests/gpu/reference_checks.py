"""What must hold of a store that the reference run made."""

from collections.abc import Sequence
from pathlib import Path

import torch

from eagle3.engine.engine import Engine
from eagle3.engine.rows import Report
from eagle3.errors import EngineError
from eagle3.store.manifest import Manifest
from eagle3.store.reader import StoreReader
from eagle3.store.sample import Sample
from eagle3.store.verify import verify_store
from tests.integration.engines import executor_of


class Shares:
    """Counts the rows that each rank of a running engine reports as written, and the steps."""

    def __init__(self, engine: Engine) -> None:
        workers = engine._workers
        assert workers is not None
        self.rows = [0] * workers.count
        self.steps = 0
        call = workers.call

        def counting(method: str, *arguments: object, timeout_s: float) -> list[object]:
            replies = call(method, *arguments, timeout_s=timeout_s)
            self.steps += method == "run_captured_step"
            for rank, reply in enumerate(replies):
                if isinstance(reply, Report):
                    self.rows[rank] += sum(rows.count for rows in reply.written)
            return replies

        workers.call = counting  # type: ignore[method-assign]

    def check(self, tokens: int) -> str:
        """Raises EngineError unless the ranks wrote `tokens` rows, each its share of every step."""
        if sum(self.rows) != tokens:
            raise EngineError(f"{sum(self.rows):,} rows were written, and {tokens:,} planned")
        apart = max(self.rows) - min(self.rows)
        # The share of a step is rounded to whole rows.
        if apart > self.steps:
            raise EngineError(f"the ranks wrote {self.rows} rows in {self.steps} steps")
        return (
            f"rows: {tokens:,} in {self.steps:,} steps, each once; {min(self.rows):,} to "
            f"{max(self.rows):,} by each of {len(self.rows)} writers"
        )


def check_store(folder: Path, samples: Sequence[Sample], manifest: Manifest) -> list[str]:
    """Reads every byte back. Raises EngineError for anything but `samples`, whole and finite."""
    store = StoreReader(folder)
    if damages := verify_store(store, lambda _: None):
        raise EngineError(f"{folder}: {next(iter(damages))}")
    if difference := manifest.difference(store.manifest):
        raise EngineError(f"{folder}: in the manifest, {difference}")
    if set(store.ids) != {sample.id for sample in samples} or not store.is_complete:
        raise EngineError(f"{folder} holds {len(store.ids)} of {len(samples)} samples")
    counts = store.manifest.counts
    if counts is None or (counts.samples, counts.tokens) != (len(samples), store.tokens):
        raise EngineError(f"{folder}: the manifest counts {counts}")
    width = (len(manifest.capture_points), manifest.hidden_size)
    for sample in samples:
        found, states_TLH = store.read(sample.id)
        shape = (len(sample.input_ids), *width)
        if found != sample or states_TLH.shape != shape or states_TLH.dtype != torch.bfloat16:
            raise EngineError(f"{sample.id}: {states_TLH.shape} of {states_TLH.dtype}, not {shape}")
        if not torch.isfinite(states_TLH).all():
            raise EngineError(f"{sample.id} has a value that is no number")
    return [
        f"store: {len(samples):,} samples, {store.tokens:,} tokens of {list(width)}, bfloat16, all "
        "finite",
        f"manifest: points {','.join(map(str, manifest.capture_points))}, stack "
        f"{manifest.stack.name} {manifest.stack.digest[:12]}, {counts.shards} shards, "
        f"{counts.bytes:,} bytes; every checksum right",
    ]


def nearness(one: Path, other: Path) -> str:
    """How near the states are that two stores both hold; other steps round in another way."""
    first, second = StoreReader(one), StoreReader(other)
    cosines = []
    for sample_id in first.ids:
        if sample_id in second.entries:
            ours, theirs = (store.read(sample_id)[1].float() for store in (first, second))
            cosines.append(torch.nn.functional.cosine_similarity(ours, theirs, dim=-1).flatten())
    cosine = torch.cat(cosines)
    return f"cosine of {len(cosine):,} rows: median {cosine.median():.5f}, worst {cosine.min():.5f}"


def worker_pids(engine: Engine) -> list[int]:
    """The process of each rank of a running engine."""
    return [worker.proc.pid for worker in executor_of(engine).workers]
