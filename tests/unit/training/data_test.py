"""From the store to batches: which rows stand where."""

import dataclasses
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch

from eagle3.errors import StoreError
from eagle3.store.encoding import decode, encode
from eagle3.store.reader import StoreReader
from eagle3.store.row_format import FLOAT8
from eagle3.store.writer import StoreWriter
from eagle3.training.batch import PADDING, PackedBatch
from eagle3.training.data import BatchLoader, fill_batch, packed_documents
from eagle3.training.order import EpochStart
from eagle3.training.packing import Document, Packed
from eagle3.training.parallel import add_noise, shuffle_states
from eagle3.training.samples import SHARE, SampleSet, split_samples
from eagle3.training.shift import counted_rows
from tests.unit.training.tiny_run import (
    CAPTURE_POINTS,
    VOCAB_SIZE,
    commit,
    make_manifest,
    make_samples,
    make_states,
    make_target,
    make_world,
)

CPU = torch.device("cpu")


@pytest.fixture
def samples(tmp_path: Path) -> SampleSet:
    store = StoreReader(make_world(tmp_path) / "store")
    return SampleSet(store, sorted(store.ids))


def test_documents_stand_one_after_the_other_and_padding_last(samples: SampleSet) -> None:
    documents = (Document(3, 0, 5), Document(1, 2, 4))
    batch = fill_batch(samples, documents, 12)
    assert batch.document_T.tolist() == [0] * 5 + [1] * 4 + [PADDING] * 3
    assert batch.position_T.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 0, 0]
    expected_ids, expected_masks, end = [], [], 0
    for document in documents:
        sample, _ = samples.store.read(samples.ids[document.sample])
        rows = slice(document.start, document.start + document.length)
        expected_ids += sample.input_ids[rows]
        expected_masks += sample.loss_mask[rows]
        expected = make_states(sample)[rows]
        assert torch.equal(batch.hidden_states_TLH[end : end + document.length], expected)
        end += document.length
    assert batch.input_ids_T.tolist() == [*expected_ids, 0, 0, 0]
    assert batch.loss_mask_T.int().tolist() == [*expected_masks, 0, 0, 0]
    assert not batch.hidden_states_TLH[end:].any()


def test_batches_come_in_order_whatever_the_threads(samples: SampleSet) -> None:
    planned = list(islice(packed_documents(samples, 64, 0), 30))
    steps = [planned[place : place + 2] for place in range(0, 30, 2)]
    with BatchLoader(samples, 64, CPU, unroll_steps=3, readers=4) as loader:
        found = [(step.tokens, step.counted_S, list(step.batches)) for step in loader.steps(steps)]
    assert len(found) == 15
    for documents, (tokens, counted_S, batches) in zip(steps, found, strict=True):
        expected = [fill_batch(samples, part, 64) for part in documents]
        assert tokens == sum(document.length for part in documents for document in part)
        assert torch.equal(counted_S, sum_of([counted_rows(batch, 3) for batch in expected]))
        for batch, other in zip(batches, expected, strict=True):
            assert all(map(torch.equal, batch.tensors(), other.tensors()))


@pytest.mark.parametrize(("batches", "ahead"), [(1, 4), (2, 2), (3, 2), (4, 1), (8, 1)])
def test_while_a_step_is_used_every_thread_reads_the_next(
    samples: SampleSet, batches: int, ahead: int
) -> None:
    planned = packed_documents(samples, 64, 0)
    taken: list[int] = []

    def steps() -> Iterator[list[Packed]]:
        for number in range(8):
            taken.append(number)
            yield list(islice(planned, batches))

    with BatchLoader(samples, 64, CPU, unroll_steps=3, readers=4) as loader:
        next(loader.steps(steps()))
    assert taken == list(range(1 + ahead))


def sum_of(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(tensors).sum(0)


def test_the_stream_has_every_sample_once_an_epoch_in_another_order(samples: SampleSet) -> None:
    seen: list[int] = []
    for batch in packed_documents(samples, 64, 0):
        seen += [document.sample for document in batch]
        if len(seen) >= 2 * len(samples.ids):
            break
    first, second = seen[: len(samples.ids)], seen[len(samples.ids) :][: len(samples.ids)]
    assert sorted(first) == sorted(second) == list(range(len(samples.ids)))
    assert first != second


def test_the_stream_goes_on_from_the_beginning_of_any_epoch(samples: SampleSet) -> None:
    begun: list[EpochStart] = []
    whole = list(islice(packed_documents(samples, 64, 0, on_epoch=begun.append), 90))
    assert [start.epoch for start in begun] == list(range(len(begun)))
    assert len(begun) > 2
    for start in begun:
        left = whole[start.batches :]
        assert list(islice(packed_documents(samples, 64, 0, start), len(left))) == left


def test_a_damaged_sample_ends_the_run(samples: SampleSet) -> None:
    shard = samples.store.folder / samples.store.shards[0]
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with (
        BatchLoader(samples, 1024, CPU, unroll_steps=3, readers=2) as loader,
        pytest.raises(StoreError, match="its checksum is not the committed one"),
    ):
        list(loader.steps([[batch] for batch in islice(packed_documents(samples, 1024, 0), 1)]))


def noisy(samples: SampleSet, seed: int, number: int) -> PackedBatch:
    batch = fill_batch(samples, (Document(0, 0, 8),), 8)
    add_noise(batch, 0.5, seed, number)
    return batch


def test_noise_is_on_the_fused_states_alone(samples: SampleSet) -> None:
    plain = fill_batch(samples, (Document(0, 0, 8),), 8).hidden_states_TLH.float()
    states = noisy(samples, 0, 0).hidden_states_TLH.float()
    assert torch.equal(states[:, -1], plain[:, -1])
    noise = (states - plain)[:, :-1]
    # bf16 rounds the sum.
    assert 0.3 < noise.abs().max() < 0.55
    assert noise.mean().abs() < 0.1


def test_noise_follows_from_seed_and_batch(samples: SampleSet) -> None:
    first, again = noisy(samples, 1, 2), noisy(samples, 1, 2)
    assert torch.equal(first.hidden_states_TLH, again.hidden_states_TLH)
    for other in (noisy(samples, 1, 3), noisy(samples, 2, 2)):
        assert not torch.equal(first.hidden_states_TLH, other.hidden_states_TLH)


def shuffled(samples: SampleSet, seed: int, number: int) -> PackedBatch:
    batch = fill_batch(samples, (Document(0, 0, 8), Document(1, 0, 8)), 20)
    shuffle_states(batch, seed, number)
    return batch


def test_shuffling_deals_the_fused_states_to_other_rows(samples: SampleSet) -> None:
    plain = fill_batch(samples, (Document(0, 0, 8), Document(1, 0, 8)), 20)
    batch = shuffled(samples, 0, 0)
    before, after = plain.hidden_states_TLH, batch.hidden_states_TLH
    assert torch.equal(after[:, -1], before[:, -1])
    assert torch.equal(batch.input_ids_T, plain.input_ids_T)
    assert not torch.equal(after[:16], before[:16])
    # Each row's three states go together, and padding has no part in it.
    rows, dealt = before[:, :-1].flatten(1), after[:, :-1].flatten(1)
    assert torch.equal(dealt[16:], rows[16:])
    assert sorted(dealt[:16].tolist()) == sorted(rows[:16].tolist())


def test_shuffling_follows_from_seed_and_batch(samples: SampleSet) -> None:
    first, again = shuffled(samples, 1, 2), shuffled(samples, 1, 2)
    assert torch.equal(first.hidden_states_TLH, again.hidden_states_TLH)
    for other in (shuffled(samples, 1, 3), shuffled(samples, 2, 2)):
        assert not torch.equal(first.hidden_states_TLH, other.hidden_states_TLH)


def test_the_split_goes_by_seed_and_sample(samples: SampleSet) -> None:
    store = samples.store
    training, validation, by = split_samples(store, None, 0, 0.3)
    assert by == SHARE
    assert sorted([*training.ids, *validation.ids]) == sorted(store.ids)
    assert 0 < len(validation.ids) < len(training.ids)
    assert set(validation.ids) < set(split_samples(store, None, 0, 0.6)[1].ids)
    assert set(validation.ids) != set(split_samples(store, None, 1, 0.3)[1].ids)


def test_tokens_are_counted_where_they_are_supervised(samples: SampleSet) -> None:
    expected = torch.zeros(VOCAB_SIZE, dtype=torch.int64)
    for sample_id in samples.ids:
        sample, states = samples.store.read(sample_id)
        assert states.shape[1] == len(CAPTURE_POINTS)
        for token, supervised in zip(sample.input_ids, sample.loss_mask, strict=True):
            expected[token] += supervised
    assert torch.equal(samples.token_frequencies(VOCAB_SIZE), expected)


def test_states_of_8_bits_come_decoded(tmp_path: Path) -> None:
    target, made = make_target(tmp_path / "target"), make_samples(6)
    manifest = dataclasses.replace(make_manifest(target, made), dtype=FLOAT8)
    with StoreWriter(tmp_path / "store", manifest) as store:
        commit(store, made)
    samples = SampleSet(StoreReader(tmp_path / "store"), [sample.id for sample in made])
    documents = (Document(3, 0, 5), Document(1, 2, 4))
    with BatchLoader(samples, 12, CPU, unroll_steps=3, readers=1) as loader:
        [step] = loader.steps([[documents]])
        [batch] = step.batches
    expected = [
        decode(encode(make_states(made[part.sample]), FLOAT8), FLOAT8)[
            part.start : part.start + part.length
        ]
        for part in documents
    ]
    assert torch.equal(batch.hidden_states_TLH[:9], torch.cat(expected))
    assert not batch.hidden_states_TLH[9:].any()
