"""The bench of preparations: both sides do the same work, and all of it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from eagle3.bench_prepare import bench_prepare
from eagle3.benchmark.preparation.measure import measure
from eagle3.benchmark.preparation.rows import SHAPES, Shape, write_rows
from eagle3.preparation.dataset import read_dataset
from eagle3.preparation.prepare import prepare
from eagle3.preparation.request import PreparationRequest
from eagle3.progress import Progress
from tests.unit.tiny_target import make_target

WORDS = [f"word{number}" for number in range(300)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_rows_are_as_the_shape_says(tmp_path: Path, shape: Shape) -> None:
    rows = [json.loads(line) for line in write_rows(tmp_path / "d", shape, WORDS, 0.01).open()]
    assert len({json.dumps(row) for row in rows}) == len(rows) == round(0.01 * shape.rows)
    assert all(len(row["messages"]) == 2 * shape.answers for row in rows)


def test_the_tokenizer_encodes_what_is_prepared(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "d.jsonl", Shape("three answers", 12, 3, 6, 10), WORDS)
    request = PreparationRequest(data, make_target(tmp_path / "target"), tmp_path / "out")
    speed = measure(request, processes=2, repeats=1)
    # The folder of a measured preparation does not stay.
    assert {path.name for path in tmp_path.iterdir()} == {"d.jsonl", "target"}
    prepare(request, Progress())
    tokens = [len(sample.input_ids) for sample in read_dataset(tmp_path / "out")]
    assert speed.rows == len(tokens) == 12
    # What the template puts behind the last end of turn is rendered, but no part of a sample.
    assert speed.tokens == sum(tokens) + len(tokens)
    assert speed.prepare_s > 0
    assert speed.share == speed.tokenizer_s / speed.prepare_s


def test_the_command_tells_each_shape(tmp_path: Path) -> None:
    model = str(make_target(tmp_path / "target"))
    flags = ["--model", model, "--processes", "1", "--repeats", "1", "--scale", "0.001"]
    result = CliRunner().invoke(bench_prepare, [*flags, "--json"])
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["shape"] for line in lines] == [shape.name for shape in SHAPES]
    assert all(line["share"] > 0 for line in lines)
    told = CliRunner().invoke(bench_prepare, flags).stdout
    assert "the tokenizer alone" in told
    assert "8 rows of" in told
