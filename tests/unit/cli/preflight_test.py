"""What the user of preflight reads."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eagle3.extract import extract
from eagle3.preflight import preflight
from tests.unit.tiny_target import make_target


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    make_target(tmp_path / "target")
    (tmp_path / "data.jsonl").write_text('{"input_ids": [1, 2, 3], "loss_mask": [0, 1, 1]}\n')
    return tmp_path


def run(desk: Path, *arguments: str) -> Result:
    environment = {"BUILD_WORKING_DIRECTORY": str(desk)}
    fixed = ["--model", "target", "--data", "data.jsonl", *arguments]
    return CliRunner(env=environment).invoke(preflight, fixed)


def test_each_check_is_a_line_and_nothing_is_left(desk: Path) -> None:
    before = sorted(desk.rglob("*"))
    result = run(desk)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["ok"] * len(lines)
    assert "ok    layers: after-layer 1,3,4,7 = vllm 2,4,5,8, of 8 layers" in lines
    assert sorted(desk.rglob("*")) == before


def test_what_would_fail_is_code_2_with_its_fix(desk: Path) -> None:
    (desk / "target" / "model.safetensors").write_text("version https://git-lfs.github.com/spec\n")
    result = run(desk)
    assert result.exit_code == 2
    assert (
        "fail  weights: model.safetensors is a pointer of git-lfs, not weights; complete the "
        f"folder {desk / 'target'}"
    ) in result.stdout
    first, *between, done, error = result.stderr.splitlines()
    assert first == "preflight ..."
    # Where the machine is busy it tells that it still waits.
    assert all(re.fullmatch(r"preflight: \d+ s", line) for line in between)
    assert done.startswith("preflight: done in ")
    assert error.startswith("error: 1 of 12 findings would stop the target")


def test_json_is_one_line(desk: Path) -> None:
    result = run(desk, "--json", "--tp", "3")
    assert result.exit_code == 2
    report = json.loads(result.stdout)
    assert report["ok"] is False
    [found] = [finding for finding in report["findings"] if finding["verdict"] == "fail"]
    assert found == {
        "check": "parallel",
        "verdict": "fail",
        "found": "1 attention heads, 320 rows of the vocabulary cannot be divided among 3 ranks",
        "fix": "give another --tp, such as 1",
    }


def test_it_takes_every_option_of_extract_that_bears_on_the_load() -> None:
    own = {"as_json", "verbose"}
    of_extract = {option.name for option in extract.params} - {"preflight"}
    assert of_extract == {option.name for option in preflight.params}
    assert own < of_extract
