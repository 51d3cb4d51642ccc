"""What must hold of a store that the reference run made."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
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

# A core reads and compares more slowly than a target writes.
_THREADS = 8


class Shares:
    """The rows that each rank has reported as written, and the steps."""

    def __init__(self, ranks: int) -> None:
        self.rows = [0] * ranks
        self.steps = 0

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


@contextmanager
def counted_shares(engine: Engine) -> Iterator[Shares]:
    """Counts what a running engine does inside."""
    workers = engine._workers
    assert workers is not None
    shares = Shares(workers.count)
    call = workers.call

    def counting(method: str, *arguments: object, timeout_s: float) -> list[object]:
        replies = call(method, *arguments, timeout_s=timeout_s)
        shares.steps += method == "run_captured_step"
        for rank, reply in enumerate(replies):
            if isinstance(reply, Report):
                shares.rows[rank] += sum(rows.count for rows in reply.written)
        return replies

    workers.call = counting  # type: ignore[method-assign]
    try:
        yield shares
    finally:
        workers.call = call  # type: ignore[method-assign]


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

    def check_sample(sample: Sample) -> None:
        found, states_TLH = store.read(sample.id)
        shape = (len(sample.input_ids), *width)
        if found != sample or states_TLH.shape != shape or states_TLH.dtype != torch.bfloat16:
            raise EngineError(f"{sample.id}: {states_TLH.shape} of {states_TLH.dtype}, not {shape}")
        if not is_finite(states_TLH):
            raise EngineError(f"{sample.id} has a value that is no number")

    _for_each(check_sample, samples)
    return [
        f"store: {len(samples):,} samples, {store.tokens:,} tokens of {list(width)}, bfloat16, all "
        "finite",
        f"manifest: points {','.join(map(str, manifest.capture_points))}, stack "
        f"{manifest.stack.name} {manifest.stack.digest[:12]}, {counts.shards} shards, "
        f"{counts.bytes:,} bytes; every checksum right",
    ]


def is_finite(states: torch.Tensor) -> bool:
    """Whether no value is NaN or infinite; far faster than to ask each of them."""
    return bool(torch.stack(torch.aminmax(states)).isfinite().all())


@dataclass(frozen=True)
class Nearness:
    """Cosines between rows that two runs give for the same tokens."""

    rows: int
    median: float
    worst: float

    def __str__(self) -> str:
        return f"cosine of {self.rows:,} rows: median {self.median:.5f}, worst {self.worst:.5f}"


def nearness_of_stores(one: Path, other: Path) -> Nearness:
    """Of all that both hold; other steps round in another way."""
    first, second = StoreReader(one), StoreReader(other)
    both = [sample_id for sample_id in first.ids if sample_id in second.entries]
    return _nearness(
        _for_each(
            lambda sample_id: _cosines(first.read(sample_id)[1], second.read(sample_id)[1]), both
        )
    )


def nearness_alone(engine: Engine, prompts: Sequence[Sequence[int]], alone: int) -> Nearness:
    """Of the first `alone` prompts, each run by itself, and the same among all `prompts`."""
    together = engine.extract(prompts)
    return _nearness(
        _cosines(engine.extract([prompt_T])[0], states_TLH)
        for prompt_T, states_TLH in zip(prompts[:alone], together, strict=False)
    )


def _cosines(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cosine_similarity(one.float(), other.float(), dim=-1).flatten()


def _nearness(cosines: Iterable[torch.Tensor]) -> Nearness:
    cosine = torch.cat(list(cosines))
    return Nearness(len(cosine), cosine.median().item(), cosine.min().item())


def _for_each[Item, Result](work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """What `work` returns for each item, in threads that take a core each."""
    with ThreadPoolExecutor(_THREADS, initializer=torch.set_num_threads, initargs=(1,)) as threads:
        return list(threads.map(work, items))


def worker_pids(engine: Engine) -> list[int]:
    """The process of each rank of a running engine."""
    return [worker.proc.pid for worker in executor_of(engine).workers]
