"""Shipped conversations of a model are what README.md says they are, and all data is small."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eagle3.command import data_path, model_folder, shipped_path
from eagle3.errors import InputError
from eagle3.generation.generate import generate
from eagle3.generation.sampling import SamplingOptions
from eagle3.preparation.dataset import REJECTS, VOCABULARY, read_dataset, read_description
from eagle3.preparation.target import tokenizer_digest
from eagle3.preparation.vocabulary import read_frequencies
from eagle3.progress import Progress
from eagle3.store.sample import Sample, dataset_digest
from tests.unit.fake_generator import FakeGenerator
from tests.unit.generation.requests import make_request, speech_of

SELFGEN = "smollm2-selfgen"
LEAST_TOKENS = 2_000_000
MOST_BYTES = 12_000_000
# As in the command that README.md gives.
GENERATION = {
    "kind": "self-instruct",
    "temperature": 0.7,
    "turns": 2,
    "max_tokens": 512,
    "seed": 0,
    "on_degenerate": "drop",
}


def examples() -> Path:
    return shipped_path("examples/README.md").parent


def check(folder: Path, readme: str, least_tokens: int) -> None:
    """Raises AssertionError, or InputError, where `folder` breaks a promise."""
    described = read_description(folder)
    sequences = list(read_dataset(folder))
    samples = [Sample(sequence.input_ids, sequence.loss_mask) for sequence in sequences]
    assert len({sample.id for sample in samples}) == len(samples), "a sample is there twice"
    assert dataset_digest(samples) == described["sha256"]
    assert len(samples) == sum(described["samples"].values())
    assert sum(len(sample.input_ids) for sample in samples) == described["tokens"] >= least_tokens
    supervised = sum(sum(sample.loss_mask) for sample in samples)
    assert supervised == described["supervised_tokens"]
    assert all(0 < sum(sample.loss_mask) < len(sample.loss_mask) for sample in samples)
    counts = read_frequencies(folder / VOCABULARY, described["sha256"]).counts
    assert counts.sum() == supervised
    assert {key: described["generation"][key] for key in GENERATION} == GENERATION
    row = next((line for line in readme.splitlines() if line.startswith(f"| `{SELFGEN}` |")), "")
    assert described["sha256"] in row, "README.md tells of other data"
    assert f"{described['tokens']:,} tokens" in row
    assert "Apache-2.0" in row
    names = {path.name for path in folder.iterdir()}
    assert names == {"dataset.json", VOCABULARY, *described["files"]}


def test_shipped_data_is_small() -> None:
    sizes = [path.stat().st_size for path in examples().rglob("*") if path.is_file()]
    assert 50_000 < sum(sizes) < MOST_BYTES


if (examples() / SELFGEN).is_dir():

    def test_what_the_model_wrote_is_what_readme_says() -> None:
        readme = (examples() / "README.md").read_text(encoding="utf-8")
        check(data_path(SELFGEN), readme, LEAST_TOKENS)

    def test_it_was_made_for_the_shipped_model() -> None:
        made_for = read_description(data_path(SELFGEN))["target"]
        assert made_for["tokenizer_sha256"] == tokenizer_digest(model_folder("smollm2"))


TOKENS = 300


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, str]:
    """A small dataset that was made the same way, and the line about it."""
    request = make_request(tmp_path, conversations=1000, tokens=TOKENS, turns=2, max_tokens=512)
    request = replace(request, sampling=SamplingOptions(temperature=0.7))
    speech = speech_of(request.preparation.model, "What is {}, would you say?", "It is {}.")
    report = generate(request, Progress(), FakeGenerator(speech))
    (report.out / REJECTS).unlink()
    tokens = report.statistics.tokens
    line = f"| `{SELFGEN}` | {tokens:,} tokens, {report.dataset_sha256}, Apache-2.0 |"
    return report.out, line


def test_one_that_keeps_all_promises_is_accepted(made: tuple[Path, str]) -> None:
    check(*made, TOKENS)


def test_few_tokens_are_noticed(made: tuple[Path, str]) -> None:
    with pytest.raises(AssertionError):
        check(*made, 2 * TOKENS)


@pytest.mark.parametrize("missing", [SELFGEN, "Apache-2.0", " tokens", "sha256"])
def test_a_line_that_says_something_else_is_noticed(made: tuple[Path, str], missing: str) -> None:
    folder, line = made
    word = read_description(folder)["sha256"] if missing == "sha256" else missing
    with pytest.raises(AssertionError):
        check(folder, line.replace(word, "?"), TOKENS)


def test_another_file_is_noticed(made: tuple[Path, str]) -> None:
    folder, line = made
    (folder / REJECTS).touch()
    with pytest.raises(AssertionError):
        check(folder, line, TOKENS)


def test_damage_is_noticed(made: tuple[Path, str]) -> None:
    folder, line = made
    file = folder / "train-00000.parquet"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match="damaged"):
        check(folder, line, TOKENS)


@pytest.mark.parametrize(
    "change", [{"tokens": 1000}, {"supervised_tokens": 1}, {"samples": {"train": 1}}, {"seed": 1}]
)
def test_another_count_is_noticed(made: tuple[Path, str], change: dict[str, Any]) -> None:
    folder, line = made
    described = read_description(folder)
    if "seed" in change:
        change = {"generation": {**described["generation"], **change}}
    (folder / "dataset.json").write_text(json.dumps({**described, **change}))
    with pytest.raises(AssertionError):
        check(folder, line, TOKENS)
