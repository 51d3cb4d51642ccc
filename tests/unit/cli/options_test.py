"""The options of the commands are frozen: a change is seen here, and told in docs/."""

import pytest
from click.testing import CliRunner

from eagle3.engine.options import EngineOptions, default_tokens_per_step
from eagle3.extract import extract
from eagle3.store.part import Part

OPTIONS = {
    "--data": None,
    "--fp8-states": False,
    "--gpu-memory-utilization": 0.8,
    "--help": False,
    "--json": False,
    "--layer-convention": "after-layer",
    "--layers": None,
    "--limit": None,
    "--max-model-len": None,
    "--max-tokens-per-step": default_tokens_per_step(),
    "--model": "smollm2",
    "--on-bad": "fail",
    "--out": "./eagle3-out",
    "--prefetch": False,
    "--preflight": True,
    "--disk-budget": None,
    "--ring-size": 2**30,
    "--seed": 0,
    "--shard": Part(),
    "--shard-size": 2**30,
    "--step-timeout": 1800.0,
    "--tp": 1,
    "--truncate": False,
    "--trust-remote-code": False,
    "--verbose": False,
    "-v": False,
}


def test_the_options_are_the_frozen_ones() -> None:
    context = extract.make_context("extract", [])
    options = [option for option in extract.get_params(context) if option.name]
    found = {
        name: context.params.get(str(option.name), False)
        for option in options
        for name in option.opts
    }
    assert found == OPTIONS


def test_the_defaults_are_those_of_the_engine() -> None:
    # Written out in the command, since importing the engine takes seconds.
    assert OPTIONS["--gpu-memory-utilization"] == EngineOptions.gpu_memory_utilization
    assert OPTIONS["--tp"] == EngineOptions.tensor_parallel
    assert OPTIONS["--seed"] == EngineOptions.seed
    assert OPTIONS["--ring-size"] == EngineOptions.ring_bytes
    assert OPTIONS["--step-timeout"] == EngineOptions.step_timeout_s


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("1GiB", 2**30), ("256 MiB", 2**28), ("2GB", 2 * 10**9), ("3TiB", 3 * 2**40)],
)
def test_sizes_have_units(text: str, size: int) -> None:
    context = extract.make_context("extract", ["--shard-size", text])
    assert context.params["shard_bytes"] == size


def test_the_launcher_says_which_part_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("SLURM_NTASKS", "16")
    assert extract.make_context("extract", []).params["part"] == Part(3, 16)
    assert extract.make_context("extract", ["--shard", "0/1"]).params["part"] == Part()


def test_help_tells_every_option_its_default_and_the_exit_codes() -> None:
    result = CliRunner().invoke(extract, ["--help"], terminal_width=100)
    assert result.exit_code == 0
    for name in OPTIONS:
        assert name in result.stdout
    for default in ("[default: smollm2]", "(2048, or less", "[default: ./eagle3-out]", "(all)"):
        assert default in result.stdout
    for line in ("0    done", "2    an option", "3    the target", "4    the output", "130  inter"):
        assert line in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layers", "two"], "'two' is not whole numbers with commas between"),
        (["--layers", "1,,2"], "'1,,2' is not whole numbers with commas between"),
        (["--layers", ""], "'' is not whole numbers with commas between"),
        (["--layer-convention", "before"], "'before' is not one of 'after-layer', 'vllm'"),
        (["--tp", "0"], "0 is not in the range x>=1"),
        (["--limit", "0"], "0 is not in the range x>=1"),
        (["--seed", str(2**32)], "4294967296 is not in the range 0<=x<=4294967295"),
        (["--max-model-len", "none"], "'none' is not a valid integer"),
        (["--gpu-memory-utilization", "1.5"], "1.5 is not in the range 0<x<=1"),
        (["--shard-size", "big"], "'big' is not a size such as 1GiB"),
        (["--shard-size", "0"], "'0' is not a size such as 1GiB"),
        (["--shard", "2/2"], "'2/2' is no share of the work; give i/N"),
        (["--on-bad", "ignore"], "'ignore' is not one of 'fail', 'quarantine'"),
        (["--ouput", "x"], "No such option: --ouput"),
        (["FILE"], "Got unexpected extra argument (FILE)"),
    ],
)
def test_a_wrong_option_is_one_line_and_code_2(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(extract, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
