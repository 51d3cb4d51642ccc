"""Held-out conversations, repeated ids, token frequencies and the page of lengths."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from eagle3.errors import StoreError
from eagle3.preparation.page import histogram, write_page
from eagle3.preparation.samples import SCHEMA
from eagle3.preparation.seen import SeenIds
from eagle3.preparation.split import is_validation
from eagle3.preparation.statistics import Statistics
from eagle3.preparation.tokenizing import Outcome
from eagle3.preparation.vocabulary import TokenFrequencies, read_frequencies, write_frequencies
from eagle3.store.sample import Sample, dataset_digest


def table(*samples: tuple[list[int], list[int]]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"id": str(number), "conversation": "c", "input_ids": ids, "loss_mask": mask}
            for number, (ids, mask) in enumerate(samples)
        ],
        SCHEMA,
    )


def test_the_held_out_share_is_what_was_asked() -> None:
    names = [f"conversation {number}" for number in range(4000)]
    held_out = [name for name in names if is_validation(0, name, 0.1)]
    assert 0.08 < len(held_out) / len(names) < 0.12
    assert held_out == [name for name in names if is_validation(0, name, 0.1)]
    assert held_out != [name for name in names if is_validation(1, name, 0.1)]
    assert set(held_out) <= {name for name in names if is_validation(0, name, 0.2)}
    assert not any(is_validation(0, name, 0.0) for name in names)


def test_the_split_never_changes() -> None:
    # Another version that held out others would train on what an earlier one was measured on.
    names = [name for name in "abcdefghijklmnopqrstuvwxyz" if is_validation(7, name, 0.2)]
    assert names == ["e", "l", "w"]


def test_ids_are_new_once_and_their_digest_is_the_stores(tmp_path: Path) -> None:
    samples = [Sample((number,), (1,)) for number in range(3000)]
    ids = [sample.id for sample in samples]
    seen = SeenIds(tmp_path / "seen")
    assert seen.add([*ids[:30], ids[3]]) == [True] * 30 + [False]
    assert seen.add(ids[20:]) == [False] * 10 + [True] * 2970
    assert seen.digest() == dataset_digest(samples)
    seen.close()
    assert not list(tmp_path.iterdir())


def test_only_supervised_tokens_of_the_training_part_are_counted() -> None:
    statistics = Statistics(vocab_size=4, max_model_len=5)
    statistics.add_samples("train", table(([0, 1, 1], [0, 1, 1]), ([3, 2, 1], [1, 0, 1])))
    statistics.add_samples("validation", table(([2, 2], [1, 1])))
    assert statistics.supervised_counts.tolist() == [0, 3, 0, 1]
    assert (statistics.tokens, statistics.supervised) == (8, 6)
    assert statistics.lengths.tolist() == [0, 0, 1, 2, 0, 0]
    assert [statistics.quantile(share) for share in (0.1, 0.5, 1.0)] == [2, 3, 3]


def test_reasons_do_not_grow_without_end() -> None:
    statistics = Statistics(vocab_size=1, max_model_len=1)
    for number in range(3000):
        statistics.add_row(Outcome("d:1", "error", reason=f"reason {number}"))
    assert len(statistics.reasons) <= 1001
    assert statistics.reasons.total() == statistics.rows["error"] == 3000


def test_a_draft_vocabulary_is_the_most_frequent_tokens() -> None:
    frequencies = TokenFrequencies("d", np.array([5, 0, 7, 5, 3]))
    assert frequencies.draft_vocabulary(2).tolist() == [0, 2]
    assert frequencies.draft_vocabulary(3).tolist() == [0, 2, 3]
    assert [frequencies.coverage(size) for size in (1, 2, 4, 9)] == [0.35, 0.6, 1.0, 1.0]


def test_frequencies_belong_to_their_dataset(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.parquet"
    write_frequencies(path, TokenFrequencies("this", np.array([0, 3, 0, 1])))
    assert read_frequencies(path, "this").counts.tolist() == [0, 3, 0, 1]
    with pytest.raises(StoreError, match="counted in another dataset"):
        read_frequencies(path, "that")


def test_the_page_shows_every_sample_and_needs_nothing_else(tmp_path: Path) -> None:
    statistics = Statistics(vocab_size=2, max_model_len=1000)
    statistics.add_samples("train", table(*[([1] * n, [1] * n) for n in (1, 50, 50, 997)]))
    edges, counts = histogram(statistics)
    assert counts.sum() == 4
    assert (edges[0], len(edges)) == (1, len(counts) + 1)
    assert edges[-1] > 997
    write_page(tmp_path / "page.html", "<data>", statistics)
    page = (tmp_path / "page.html").read_text()
    assert "&lt;data&gt;" in page
    assert page.count("<rect") == len(counts)
    assert "4 samples, 1,098 tokens" in page
    assert "http" not in page
    assert "<script" not in page
