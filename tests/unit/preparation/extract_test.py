"""What a preparation wrote is what an extraction reads."""

import json
from pathlib import Path
from typing import Any

import pytest

from eagle3.errors import InputError
from eagle3.extraction.samples import PlannedSamples, read_samples
from eagle3.preparation.prepare import prepare
from eagle3.preparation.request import PreparationRequest
from eagle3.progress import Progress
from eagle3.store.sample import dataset_digest
from tests.unit.preparation import rows
from tests.unit.tiny_target import CHAT_TEMPLATE, make_target


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_target(tmp_path / "target")


@pytest.fixture
def dataset(tmp_path: Path, model: Path) -> Path:
    data = rows.write_all(tmp_path / "d.jsonl")
    out = tmp_path / "out"
    prepare(PreparationRequest(data, model, out, validation_share=0.2), Progress())
    return out


def read(data: Path, model: Path, **options: Any) -> PlannedSamples:
    defaults: dict[str, Any] = {
        "limit": None,
        "vocab_size": 1000,
        "max_model_len": 2048,
        "truncate": False,
    }
    return read_samples(data, model, **{**defaults, **options})


def test_both_parts_are_read_and_are_the_same_dataset(dataset: Path, model: Path) -> None:
    planned = read(dataset, model)
    description = json.loads((dataset / "dataset.json").read_text())
    assert dataset_digest(planned.samples) == description["sha256"]
    assert planned.duplicates == 0
    assert planned.places[planned.samples[0].id] == "train-00000.parquet:1"
    validation = {
        sample_id for sample_id, place in planned.places.items() if place.startswith("validation-")
    }
    assert 0 < len(validation) == description["samples"]["validation"]
    assert planned.held_out == validation


def test_nothing_else_is_held_out(tmp_path: Path, model: Path) -> None:
    data = rows.write(tmp_path / "rows.jsonl", rows.TOKENS)
    assert read(data, model).held_out == frozenset()
    prepare(PreparationRequest(data, model, tmp_path / "whole"), Progress())
    assert read(tmp_path / "whole", model).held_out == frozenset()


def test_limit_counts_samples(dataset: Path, model: Path) -> None:
    assert len(read(dataset, model, limit=3).samples) == 3


def test_another_tokenizer_is_refused(tmp_path: Path, dataset: Path) -> None:
    other = make_target(tmp_path / "other", chat_template=CHAT_TEMPLATE + " ")
    with pytest.raises(InputError, match="was prepared for target, whose tokenizer or template"):
        read(dataset, other)


def test_a_folder_that_is_no_dataset_is_refused(tmp_path: Path, model: Path) -> None:
    with pytest.raises(InputError, match="is not a prepared dataset"):
        read(model, model)


def test_a_dataset_of_another_version_is_refused(dataset: Path, model: Path) -> None:
    path = dataset / "dataset.json"
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    with pytest.raises(InputError, match="has schema_version 2"):
        read(dataset, model)
