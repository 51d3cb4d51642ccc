"""The command as its users meet it: options, table, JSON, errors."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import eagle3.generation.generate
from eagle3.extract import extract
from eagle3.generation.generate import generate
from eagle3.prepare import _usual_workers, prepare
from tests.unit.fake_generator import FakeGenerator
from tests.unit.generation.requests import speech_of, write_questions
from tests.unit.preparation import rows
from tests.unit.tiny_target import make_target

OPTIONS = {
    "--data": None,
    "--date": None,
    "--draft-vocab": 32000,
    "--format": None,
    "--gpu-memory-utilization": 0.8,
    "--help": False,
    "--history": "split",
    "--html": False,
    "--json": False,
    "--limit": None,
    "--lint": False,
    "--long": "drop",
    "--max-model-len": None,
    "--max-tokens": 1024,
    "--model": "smollm2",
    "--on-degenerate": "drop",
    "--out": "./eagle3-data",
    "--preflight": True,
    "--reasoning": "keep",
    "--regenerate": False,
    "--seed": 0,
    "--self-instruct": None,
    "--show": 0,
    "--stop": (),
    "--temperature": None,
    "--tokens": None,
    "--top-p": None,
    "--tp": 1,
    "--trust-remote-code": False,
    "--turns": 1,
    "--validation-share": 0.0,
    "--verbose": False,
    "--workers": None,
    "-v": False,
}

# What extract must be told again, or it refuses the dataset or the target.
OF_THE_TARGET = ("max_model_len", "tensor_parallel", "trust_remote_code")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_target(tmp_path_factory.mktemp("model") / "target")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return rows.write_all(tmp_path / "d.jsonl")


def invoke(*arguments: Any, color: bool = False) -> Result:
    return CliRunner().invoke(prepare, [str(argument) for argument in arguments], color=color)


def test_the_options_are_the_frozen_ones() -> None:
    context = prepare.make_context("prepare", [])
    found = {
        name: context.params.get(str(option.name), False)
        for option in prepare.get_params(context)
        for name in option.opts
        if option.name
    }
    assert found == OPTIONS


@pytest.mark.parametrize(("size", "workers"), [(0, 1), (7_999_999, 1), (8_000_000, 2), (10**9, 64)])
def test_there_are_no_more_processes_than_have_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, workers: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    file = tmp_path / "d.jsonl"
    file.touch()
    os.truncate(file, size)
    assert _usual_workers(file) == _usual_workers(tmp_path) == workers


def test_help_tells_every_option_and_the_exit_codes() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    for text in (
        *OPTIONS,
        "0    done",
        "2    an option",
        "3    the target",
        "4    the output",
        "130  inter",
        "143  ended",
    ):
        assert text in result.stdout


def test_the_table_accounts_for_every_row(tmp_path: Path, model: Path, data: Path) -> None:
    result = invoke("--data", data, "--model", model, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert "rows      41 success + 6 skipped + 8 error = 55 input" in result.stdout
    assert "32,000 covers 100.0 %" in result.stdout
    assert "3 skipped: repeats an earlier row" in result.stdout


def test_the_next_command_names_target_and_data(tmp_path: Path, model: Path, data: Path) -> None:
    out = tmp_path / "my data"
    taken = told_to_extract(invoke("--data", data, "--model", model, "--out", out))
    assert (taken["model"], taken["data"]) == (str(model), str(out))
    assert [taken[name] for name in OF_THE_TARGET] == [None, 1, False]


def test_the_next_command_takes_what_extract_needs_too(
    tmp_path: Path, model: Path, data: Path
) -> None:
    options = ("--max-model-len", 100, "--tp", 8, "--trust-remote-code")
    result = invoke("--data", data, "--model", model, "--out", tmp_path / "out", *options)
    taken = told_to_extract(result)
    assert [taken[name] for name in OF_THE_TARGET] == [100, 8, True]


def told_to_extract(result: Result) -> dict[str, Any]:
    """The parameters that the last line gives to extract."""
    assert result.exit_code == 0, result.stderr
    *_, command = result.stdout.splitlines()
    return extract.make_context("extract", shlex.split(command.split(" -- ")[1])).params


def test_json_is_one_line_of_it(tmp_path: Path, model: Path, data: Path) -> None:
    arguments = ("--data", data, "--model", model, "--out", tmp_path / "out", "--json")
    result = invoke(*arguments, "--show", 1, "--draft-vocab", 3)
    told = json.loads(result.stdout)
    assert (told["input"], told["success"], told["skipped"], told["error"]) == (55, 41, 6, 8)
    assert 0 < told["coverage"] < 1


@pytest.mark.parametrize("color", [True, False])
def test_shown_samples_mark_what_is_supervised(
    tmp_path: Path, model: Path, data: Path, color: bool
) -> None:
    arguments = ("--data", data, "--model", model, "--out", tmp_path / "out", "--show", 2)
    shown = invoke(*arguments, color=color).stdout
    answer = "«It is 0.<|end|>»"
    assert (f"\x1b[32m{answer}\x1b[0m" if color else f"assistant\n{answer}\n") in shown
    assert shown.count("--- ") == 2


def test_without_a_tokenizer_ready_tokens_are_prepared_and_not_shown(tmp_path: Path) -> None:
    model = make_target(tmp_path / "bare", chat_template=None)
    data = rows.write(tmp_path / "d.jsonl", rows.TOKENS[:1])
    result = invoke("--data", data, "--model", model, "--out", tmp_path / "out", "--show", 1)
    assert result.exit_code == 0, result.stderr
    assert "samples   1 train" in result.stdout
    assert "not shown: the tokenizer in " in result.stderr


def test_html_writes_the_page(tmp_path: Path, model: Path, data: Path) -> None:
    out = tmp_path / "out"
    invoke("--data", data, "--model", model, "--out", out, "--html")
    assert (out / "lengths.html").read_text().startswith("<!DOCTYPE html>")


def test_lint_tells_what_it_found(model: Path) -> None:
    result = invoke("--lint", "--model", model)
    assert result.exit_code == 0
    assert "ok     all answers of a conversation fit one sample" in result.stdout


def test_lint_fails_for_a_template_that_cannot_be_used(tmp_path: Path) -> None:
    model = make_target(tmp_path / "t", chat_template="{{ raise_exception('never') }}")
    result = invoke("--lint", "--model", model)
    assert result.exit_code == 2
    assert "fault  two questions and answers: the chat template refuses" in result.stdout
    assert result.stderr.startswith("error: ")


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (("--regenerate", "--data"), ("It is {}.", "ha" * 40)),
        (("--self-instruct", "5"), ("What is {}, would you say?", "")),
    ],
)
def test_the_target_writes_and_the_table_tells_of_it(
    tmp_path: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    texts: tuple[str, ...],
) -> None:
    def generate_without_engine(request: Any, progress: Any) -> Any:
        assert (request.max_tokens, request.sampling.stop) == (70, ("<|begin|>",))
        return generate(request, progress, FakeGenerator(speech_of(model, *texts)))

    monkeypatch.setattr(eagle3.generation.generate, "generate", generate_without_engine)
    if "--data" in arguments:
        arguments = (*arguments, str(write_questions(tmp_path / "d.jsonl", 9)))
    options = ("--model", model, "--out", tmp_path / "out", "--max-tokens", 70)
    result = invoke(*arguments, *options, "--stop", "<|begin|>", "--show", 1)
    assert result.exit_code == 0, result.stderr
    assert " generated; degenerate: " in result.stdout
    assert "<|end|>»" in result.stdout


@pytest.mark.parametrize(
    ("number", "code", "last"),
    [
        (signal.SIGINT, 130, "error: interrupted"),
        (signal.SIGTERM, 143, "error: ended by SIGTERM"),
    ],
)
@pytest.mark.parametrize(
    ("options", "told", "left"),
    [
        ((), "out: nothing was kept; the same command begins anew", []),
        (("--regenerate",), "journal: 5 conversations are safe in ", [".out.generated.jsonl"]),
    ],
)
def test_a_signal_ends_it_with_what_is_kept_and_how_to_go_on(
    tmp_path: Path,
    model: Path,
    number: int,
    code: int,
    last: str,
    options: tuple[str, ...],
    told: str,
    left: list[str],
) -> None:
    program = Path(__file__).with_name("prepare_until_signal.py")
    data = write_questions(tmp_path / "d.jsonl", 9) if options else rows.write_all(tmp_path / "d")
    place = tmp_path / "place"
    place.mkdir()
    command = [sys.executable, program, str(int(number)), "--data", data, "--model", model]
    result = subprocess.run(
        [*command, "--out", "out", *options],
        cwd=place,
        env={
            **os.environ,
            "BUILD_WORKING_DIRECTORY": str(place),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
        capture_output=True,
        text=True,
    )
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    *_, kept, end = result.stderr.splitlines()
    assert kept.startswith(told)
    assert end == last
    assert [path.name for path in place.iterdir()] == left


def test_an_error_is_one_line_and_its_code(tmp_path: Path, model: Path, data: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("x")
    for arguments, code, message in (
        ((), 2, "--data is needed"),
        (("--data", tmp_path / "none", "--model", model), 2, "no such file"),
        (("--data", data, "--model", tmp_path / "none"), 2, "no model "),
        (("--data", data, "--model", model, "--out", taken), 4, "is there already"),
        (("--self-instruct", 3, "--data", data), 2, "writes its own questions"),
        (("--self-instruct", 3, "--regenerate"), 2, "writes its own questions"),
        (("--data", data, "--tokens", 3), 2, "says when to stop --self-instruct"),
        (("--data", data, "--long", "keep"), 2, "'keep' is not one of"),
        (("--data", data, "--validation-share", "1"), 2, "1.0 is not in the range"),
        (("--data", data, "--model", model, "--max-model-len", 5000), 2, "4,096 positions"),
    ):
        result = (
            invoke(*arguments) if "--model" in arguments else invoke(*arguments, "--model", model)
        )
        assert result.exit_code == code, (arguments, result.stderr)
        assert result.stdout == ""
        assert message in result.stderr.splitlines()[-1]
        assert result.stderr.splitlines()[-1].startswith("error: ")
