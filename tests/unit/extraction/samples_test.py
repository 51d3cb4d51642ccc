"""Lines become samples that fit the target, each only once."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from eagle3.errors import InputError
from eagle3.extraction.samples import PlannedSamples, read_samples


def read(folder: Path, *lines: dict[str, Any], **options: Any) -> PlannedSamples:
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    defaults: dict[str, Any] = {
        "limit": None,
        "vocab_size": 100,
        "max_model_len": 4,
        "truncate": False,
    }
    return read_samples(data, folder, **{**defaults, **options})


def test_a_sample_that_stands_twice_is_kept_once(tmp_path: Path) -> None:
    same = {"input_ids": [1, 2], "loss_mask": [0, 1]}
    planned = read(tmp_path, same, {"input_ids": [1, 2]}, same)
    assert [sample.loss_mask for sample in planned.samples] == [(0, 1), (1, 1)]
    assert planned.duplicates == 1
    assert planned.places[planned.samples[0].id] == "data.jsonl:1"


def test_too_long_samples_are_counted_and_the_longest_is_named(tmp_path: Path) -> None:
    lines = [{"input_ids": [1] * length} for length in (4, 5, 7, 6)]
    with pytest.raises(
        InputError,
        match=r"^data.jsonl:3: 7 tokens, but --max-model-len is 4 \(samples too long: 3,",
    ):
        read(tmp_path, *lines)


def test_truncation_cuts_tokens_and_mask_and_is_counted(tmp_path: Path) -> None:
    long = {"input_ids": [1, 2, 3, 4, 5, 6], "loss_mask": [0, 0, 0, 1, 1, 1]}
    planned = read(tmp_path, {"input_ids": [1, 2, 3, 4]}, long, truncate=True)
    assert planned.truncated == 1
    assert planned.samples[1].input_ids == (1, 2, 3, 4)
    assert planned.samples[1].loss_mask == (0, 0, 0, 1)


def test_truncation_that_leaves_nothing_to_train_on_is_refused(tmp_path: Path) -> None:
    long = {"input_ids": [1, 2, 3, 4, 5], "loss_mask": [0, 0, 0, 0, 1]}
    with pytest.raises(InputError, match=r"^data.jsonl:1: cut to 4 tokens, no supervised token"):
        read(tmp_path, long, truncate=True)


@pytest.mark.parametrize("token", [-1, 100])
def test_a_token_outside_the_vocabulary_is_named(tmp_path: Path, token: int) -> None:
    with pytest.raises(
        InputError, match=rf"^data.jsonl:2: token id {token} at position 1 .* \(0 to 99\)"
    ):
        read(tmp_path, {"input_ids": [0, 99]}, {"input_ids": [0, token]})


def test_no_samples_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no samples in"):
        read(tmp_path)


def test_limit_counts_lines(tmp_path: Path) -> None:
    lines = [{"input_ids": [token]} for token in range(5)]
    assert len(read(tmp_path, *lines, limit=3).samples) == 3


def test_equal_tokens_take_the_memory_of_one(tmp_path: Path) -> None:
    """A token of its own takes 28 bytes, and a large dataset has billions."""
    lines = [{"input_ids": [1000, 1001]}, {"input_ids": [1001, 1000, 1000]}]
    one, other = read(tmp_path, *lines, vocab_size=1002).samples
    assert one.input_ids[0] is other.input_ids[1] is other.input_ids[2]


def test_samples_that_were_cut_leave_nothing_in_memory(tmp_path: Path) -> None:
    lines = [{"input_ids": [number] * 10_000} for number in range(200)]
    options: dict[str, Any] = {
        "limit": None,
        "vocab_size": 200,
        "max_model_len": 4,
        "truncate": True,
    }
    assert read(tmp_path, *lines, **options).truncated == 200
    tracemalloc.start()
    read_samples(tmp_path / "data.jsonl", tmp_path, **options)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 200 * 10_000 * 8 / 4
