"""From the store to batches on the device, read ahead so that the device does not wait."""

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import overload

import torch

from eagle3.store.encoding import decode
from eagle3.store.row_format import width
from eagle3.training.batch import PADDING, PackedBatch
from eagle3.training.order import RUN_START, EpochStart, epoch_order
from eagle3.training.packing import Packed, pack
from eagle3.training.samples import SampleSet
from eagle3.training.shift import counted_rows

# Batches that may lie on a GPU at once: one in work, one on its way.
_ON_DEVICE = 2


def packed_documents(
    samples: SampleSet,
    capacity: int,
    seed: int,
    start: EpochStart = RUN_START,
    on_epoch: Callable[[EpochStart], None] = lambda _: None,
) -> Iterator[Packed]:
    """The documents of each batch, epoch after epoch without end; each epoch is told."""
    batches = start.batches
    for epoch in itertools.count(start.epoch):
        on_epoch(EpochStart(epoch, batches))
        for packed in pack(epoch_order(len(samples.ids), seed, epoch), samples.lengths, capacity):
            batches += 1
            yield packed


def fill_batch(samples: SampleSet, documents: Packed, capacity: int) -> PackedBatch:
    """Reads the rows of `documents` into a batch of `capacity` rows; the rest is padding.

    Its states are encoded as in the store (see `decoded`). Raises StoreError where a sample is
    damaged.
    """
    manifest = samples.store.manifest
    row_width = width(manifest.dtype, manifest.hidden_size) // torch.bfloat16.itemsize
    shape = (capacity, len(manifest.capture_points), row_width)
    pinned = torch.cuda.is_available()
    batch = PackedBatch(
        input_ids_T=torch.zeros(capacity, dtype=torch.int64, pin_memory=pinned),
        hidden_states_TLH=torch.empty(shape, dtype=torch.bfloat16, pin_memory=pinned),
        loss_mask_T=torch.zeros(capacity, dtype=torch.bool, pin_memory=pinned),
        document_T=torch.full((capacity,), PADDING, dtype=torch.int32, pin_memory=pinned),
        position_T=torch.zeros(capacity, dtype=torch.int64, pin_memory=pinned),
    )
    # As numbers: a copy between tensors would start threads beside those that train.
    rows_TLH = batch.hidden_states_TLH.view(torch.int16).numpy()
    end = 0
    for number, document in enumerate(documents):
        sample, hidden_states_TLH = samples.store.read_encoded(samples.ids[document.sample])
        source = slice(document.start, document.start + document.length)
        target = slice(end, end + document.length)
        rows_TLH[target] = hidden_states_TLH[source].view(torch.int16).numpy()
        batch.input_ids_T[target] = torch.tensor(sample.input_ids[source])
        batch.loss_mask_T[target] = torch.tensor(sample.loss_mask[source], dtype=torch.bool)
        batch.document_T[target] = number
        batch.position_T[target] = torch.arange(document.length)
        end = target.stop
    rows_TLH[end:] = 0
    return batch


def decoded(batch: PackedBatch, dtype: str) -> PackedBatch:
    """`batch` with its states as bf16 [T, L, H], on its device."""
    return replace(batch, hidden_states_TLH=decode(batch.hidden_states_TLH, dtype))


@dataclass(frozen=True)
class StepBatches:
    """A process's share of a step, and of all its batches the tokens and the rows that count."""

    tokens: int
    counted_S: torch.Tensor  # int64, of each unrolled step, on the CPU
    batches: Iterator[PackedBatch]


class BatchLoader:
    """Reads batches ahead in threads and hands them out on the device.

    A context. `waited` is the time in seconds that was spent waiting for the threads. On a GPU,
    the work that was given to it before goes on meanwhile, so it waited that long at most.
    """

    def __init__(
        self,
        samples: SampleSet,
        capacity: int,
        device: torch.device,
        *,
        unroll_steps: int,
        readers: int,
    ) -> None:
        self._samples = samples
        self._dtype = samples.store.manifest.dtype
        self._capacity = capacity
        self._device = device
        self._unroll_steps = unroll_steps
        self._readers = readers
        self._threads = ThreadPoolExecutor(readers, thread_name_prefix="read-states")
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._in_work: deque[torch.cuda.Event] = deque()
        self.waited = 0.0

    def __enter__(self) -> "BatchLoader":
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    @overload
    def steps(self, packed: Iterable[Sequence[Packed]]) -> Iterator[StepBatches]: ...

    @overload
    def steps(self, packed: Iterable[Sequence[Packed] | None]) -> Iterator[StepBatches | None]: ...

    def steps(self, packed: Iterable[Sequence[Packed] | None]) -> Iterator[StepBatches | None]:
        """What each of `packed`, the batches of one step, holds; in its order.

        None is handed on after all that came before it. To wait for `packed` is to wait, too.
        """
        ahead: deque[list[Future[PackedBatch]]] = deque()
        for step in self._timed(packed):
            if step is None:
                while ahead:
                    yield self._next(ahead.popleft())
                yield None
                continue
            ahead.append([self._threads.submit(self._fill, documents) for documents in step])
            # Beside the one that is handed out, so that every thread has work while it is used.
            if (len(ahead) - 1) * len(step) >= self._readers:
                yield self._next(ahead.popleft())
        while ahead:
            yield self._next(ahead.popleft())

    def _timed[Item](self, items: Iterable[Item]) -> Iterator[Item]:
        iterator = iter(items)
        while True:
            began = time.monotonic()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                self.waited += time.monotonic() - began
            yield item

    def _fill(self, documents: Packed) -> PackedBatch:
        batch = fill_batch(self._samples, documents, self._capacity)
        return batch if self._copies else decoded(batch, self._dtype)

    def _next(self, filling: list[Future[PackedBatch]]) -> StepBatches:
        began = time.monotonic()
        batches = [future.result() for future in filling]
        self.waited += time.monotonic() - began
        counted_BS = torch.stack([counted_rows(batch, self._unroll_steps) for batch in batches])
        tokens = sum(int((batch.document_T != PADDING).sum()) for batch in batches)
        return StepBatches(tokens, counted_BS.sum(0), map(self._on_device, batches))

    def _on_device(self, batch: PackedBatch) -> PackedBatch:
        """Copies beside the work; waits only where the host is two batches ahead of it."""
        if self._copies is None:
            return batch
        compute = torch.cuda.current_stream(self._device)
        self._in_work.append(compute.record_event())
        if len(self._in_work) == _ON_DEVICE:
            self._in_work.popleft().synchronize()
        with torch.cuda.stream(self._copies):
            moved = batch.to(self._device, non_blocking=True)
        compute.wait_stream(self._copies)
        for tensor in moved.tensors():
            # It was allocated for the copies' stream and must not be handed out again before the
            # work on it is done.
            tensor.record_stream(compute)
        # Only here: a host would not come along with a fast GPU.
        return decoded(moved, self._dtype)
