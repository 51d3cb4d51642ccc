"""What the user of extract reads, and what is in the folder afterwards."""

import json
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import save_file

import eagle3.extraction.extract
from eagle3.command import next_command
from eagle3.errors import EngineError
from eagle3.extract import extract
from eagle3.inspect import inspect
from eagle3.store.reader import StoreReader
from tests.unit import fake_engine
from tests.unit.tiny_target import HIDDEN_SIZE, make_target


class Desk:
    """A user's folder with a target and data in it, and the command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_target(folder / "target")
        self.write('{"input_ids": [1, 2, 3]}', '{"input_ids": [4, 5]}', '{"input_ids": [1, 2, 3]}')

    def write(self, *lines: str, name: str = "data.jsonl") -> None:
        (self.folder / name).write_text("".join(line + "\n" for line in lines))

    def extract(self, *arguments: str) -> Result:
        # The process stands elsewhere, as it does under `bazel run`.
        environment = {"BUILD_WORKING_DIRECTORY": str(self.folder)}
        fixed = ["--model", "target", "--data", "data.jsonl", *arguments]
        return CliRunner(env=environment).invoke(extract, fixed)

    def fail(self, *arguments: str) -> tuple[int, str]:
        """Exit code and error line of a command that must fail and leave no trace."""
        before = sorted(self.folder.rglob("*"))
        result = self.extract(*arguments)
        assert result.stdout == ""
        first, *between, last = result.stderr.splitlines()
        assert first.startswith("extract: ")
        assert last.startswith("error: ")
        assert not [line for line in between if line.startswith((" ", "Traceback", "error"))]
        assert sorted(self.folder.rglob("*")) == before
        return result.exit_code, last


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    use(monkeypatch, fake_engine.FakeEngine)
    return Desk(tmp_path)


def use(monkeypatch: pytest.MonkeyPatch, engine: type[fake_engine.FakeEngine]) -> None:
    monkeypatch.setattr(eagle3.extraction.extract, "Engine", engine)


def forbid_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(options: object) -> None:
        raise AssertionError("the target was started")

    monkeypatch.setattr(eagle3.extraction.extract, "Engine", start)


@pytest.mark.parametrize(
    ("options", "dtype"), [((), "bfloat16"), (("--fp8-states",), "float8_e4m3fn")]
)
def test_the_table_tells_what_was_done(desk: Desk, options: tuple[str, ...], dtype: str) -> None:
    result = desk.extract("--layers", "2,6", *options)
    assert result.exit_code == 0, result.stderr
    table, _, following = result.stdout.partition("\n\n")
    rows = dict(line.split(maxsplit=1) for line in table.splitlines())
    assert rows["samples"] == "2"
    assert rows["tokens"] == "5"
    assert int(rows["tokens/s"].replace(",", "")) > 0
    assert rows["layers"] == "2, 6"
    assert rows["shape"] == f"[T, 2, {HIDDEN_SIZE}] {dtype} a sample"
    assert rows["where"] == str(desk.folder / "eagle3-out")
    files = (desk.folder / "eagle3-out").glob("shard-*.safetensors")
    assert rows["bytes"] == f"{sum(path.stat().st_size for path in files):,}"
    assert following.startswith("next: ")


def test_the_next_command_is_one_that_works(desk: Desk) -> None:
    commands = desk.extract("--out", "my states").stdout.splitlines()[-2:]
    (look, folder), (learn, options) = (command.strip().split(" -- ") for command in commands)
    assert look == "tools/bazel run //eagle3:inspect"
    assert learn == "tools/bazel run //eagle3:train"
    assert shlex.split(options) == ["--store", *shlex.split(folder)]
    result = CliRunner().invoke(inspect, shlex.split(folder))
    assert result.exit_code == 0, result.stderr
    assert "2 (complete), 5 tokens" in result.stdout


@pytest.mark.parametrize(
    ("stack", "begins"),
    [("cpu", "tools/bazel run //eagle3"), ("cuda128", "tools/bazel run --config=cuda128 //eagle3")],
)
def test_the_next_command_is_of_the_same_stack(
    monkeypatch: pytest.MonkeyPatch, stack: str, begins: str
) -> None:
    monkeypatch.setattr("eagle3_stack.STACK", stack)
    assert next_command("//eagle3:train", "--store", "my states") == (
        f"{begins}:train -- --store 'my states'"
    )


def test_progress_tells_target_data_layers_and_disk(desk: Desk) -> None:
    lines = desk.extract("--layers", "2,6").stderr.splitlines()
    assert lines[0] == f"extract: states of target into {desk.folder / 'eagle3-out'}"
    assert lines[1] == "checking the target and the data ..."
    assert lines[2].startswith("checking the target and the data: done in ")
    assert "target: target (llama, 8 layers, hidden 4)" in lines
    assert "data: data.jsonl: 2 samples, 5 tokens (100% supervised), 2 to 3 each" in lines
    assert "data: repeated samples, stored once: 1" in lines
    assert "layers: 2,6 (after-layer), capture points 3,7" in lines
    assert any(line.startswith("out: ") and " kB needed, " in line for line in lines)
    assert "starting the target ..." in lines
    assert any(line.startswith("extracting: 2/2 samples, 5/5 tokens, ") for line in lines)


def test_json_is_one_line_and_all_of_stdout(desk: Desk) -> None:
    result = desk.extract("--json", "--layers", "3,7", "--layer-convention", "vllm")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert report.pop("tokens_per_s") > 0
    assert report == {
        "samples": 2,
        "tokens": 5,
        "layers": [3, 7],
        "shape": [5, 2, HIDDEN_SIZE],
        "quarantined": 0,
        "out": str(desk.folder / "eagle3-out"),
    }
    assert StoreReader(desk.folder / "eagle3-out").manifest.capture_points == (3, 7)


def test_the_same_run_again_finds_everything_and_starts_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = desk.extract("--json")
    forbid_start(monkeypatch)
    second = desk.extract("--json")
    assert second.exit_code == 0, second.stderr
    assert "out: 2 of 2 samples are already there" in second.stderr
    assert json.loads(second.stdout) == {**json.loads(first.stdout), "tokens_per_s": None}
    assert "nothing to do" in desk.extract().stdout


def test_an_interrupted_run_goes_on(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, fake_engine.FailingEngine)
    failed = desk.extract("--max-tokens-per-step", "3")
    assert failed.exit_code == 3
    assert failed.stderr.splitlines()[-1].startswith("error: the target stopped answering")
    use(monkeypatch, fake_engine.FakeEngine)
    result = desk.extract("--json")
    assert "out: 1 of 2 samples are already there" in result.stderr
    assert json.loads(result.stdout)["samples"] == 2


def test_the_first_error_is_told_whatever_else_is_wrong(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: fake_engine.FakeEngine, *_: object) -> None:
        (desk.folder / "eagle3-out" / "index.jsonl").write_text("no line of an index\n")
        raise EngineError("the target stopped answering")

    monkeypatch.setattr(fake_engine.FakeEngine, "run", fail)
    failed = desk.extract()
    assert failed.exit_code == 3
    assert failed.stderr.splitlines()[-1] == "error: the target stopped answering"


def test_a_part_is_told_and_all_parts_are_one_result(desk: Desk) -> None:
    desk.write(*(f'{{"input_ids": [{token}]}}' for token in range(20)))
    first = desk.extract("--shard", "0/2", "--json")
    assert "part: 0/2 of the work, into part-00000-of-00002" in first.stderr
    assert 0 < json.loads(first.stdout)["samples"] < 20
    second = desk.extract("--shard", "1/2", "--json")
    assert json.loads(second.stdout)["samples"] == 20
    assert "out: 20 of 20 samples are already there" in desk.extract().stderr


def test_unfit_states_stop_the_run_or_are_set_aside(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, fake_engine.UnfitEngine)
    failed = desk.extract()
    assert failed.exit_code == 3
    assert "data.jsonl:2: the target's states are all zero at token 1, cap" in failed.stderr
    result = desk.extract("--on-bad", "quarantine")
    assert result.exit_code == 0, result.stderr
    assert "out: samples set aside as unfit: 1, see quarantine.jsonl" in result.stderr
    assert "set aside 1 (quarantine.jsonl)" in result.stdout


def test_what_a_killed_run_left_whole_is_committed_without_the_target(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert desk.extract().exit_code == 0
    folder = desk.folder / "eagle3-out"
    # As if the kill had come after the last row, before the commit.
    shard = folder / "shard-00000.safetensors"
    shard.rename(shard.with_name(shard.name + ".partial"))
    (folder / "index.jsonl").rename(folder / "shard-00000.journal")
    forbid_start(monkeypatch)
    result = desk.extract("--json")
    assert "out: 2 of 2 samples are already there" in result.stderr
    assert json.loads(result.stdout)["samples"] == 2


def test_truncation_is_told(desk: Desk) -> None:
    result = desk.extract("--max-model-len", "2", "--truncate", "--json")
    assert "data: samples cut to 2 tokens: 2" in result.stderr
    assert json.loads(result.stdout)["tokens"] == 4


def test_options_reach_the_engine(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    class Recording(fake_engine.FakeEngine):
        def __init__(self, options: fake_engine.EngineOptions) -> None:
            started.append(options)
            super().__init__(options)

    use(monkeypatch, Recording)
    arguments = (
        "--layers 6,0 --tp 2 --max-model-len 7 --max-tokens-per-step 9 --seed 5 "
        "--gpu-memory-utilization 0.5 --trust-remote-code --no-preflight -v"
    )
    assert desk.extract(*arguments.split()).exit_code == 0
    assert started == [
        fake_engine.EngineOptions(
            model=desk.folder / "target",
            capture_points=(7, 1),
            tensor_parallel=2,
            max_model_len=7,
            max_tokens_per_step=9,
            gpu_memory_utilization=0.5,
            seed=5,
            trust_remote_code=True,
            verbose=True,
        )
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--model", "nowhere"], 2, "no model nowhere: neither a shipped model (smollm2) nor"),
        (["--model", "org/model"], 2, "models are never downloaded"),
        (["--model", "."], 2, "config.json"),
        (["--data", "nowhere.jsonl"], 2, "cannot read the data"),
        (["--data", "."], 2, "is not a prepared dataset"),
        (["--layers", "8"], 2, "layer 8"),
        (["--layers=-2"], 2, "layer -2"),
        (["--layers", "1,1"], 2, "layer 1 is named twice"),
        (["--max-model-len", "2"], 2, "data.jsonl:1: 3 tokens, but --max-model-len is 2"),
        (["--out", "/proc/states"], 4, "cannot write to /proc"),
        (["--out", "data.jsonl"], 4, "is a file, not a folder"),
        (["--out", "."], 4, "is not empty and holds no states"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_started_or_written(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    forbid_start(monkeypatch)
    found, line = desk.fail(*arguments)
    assert found == code
    assert message in line


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"input_ids": [1', "data.jsonl:2: not valid JSON"),
        ('{"input_ids": "1 2"}', "data.jsonl:2: `input_ids` must be a list of integers, not str"),
        ('{"input_ids": [1, 100000]}', "data.jsonl:2: token id 100000 at position 1"),
        ('{"messages": []}', "data.jsonl:2: the conversation is empty"),
        ('{"messages": "hi"}', "data.jsonl:2: `messages` must be a list, not str"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_started_or_written(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    forbid_start(monkeypatch)
    desk.write('{"input_ids": [1]}', line)
    found, error = desk.fail()
    assert found == 2
    assert message in error


def test_another_run_in_the_folder_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert desk.extract("--layers", "1,2").exit_code == 0
    forbid_start(monkeypatch)
    code, line = desk.fail("--layers", "2,1")
    assert code == 4
    assert "holds another run: capture_points is 2,3 there and 3,2 here" in line


def test_an_unforeseen_fault_is_one_line_too(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, fake_engine.UnstartableEngine)
    code, line = desk.fail()
    assert code == 1
    assert line == "error: unexpected RuntimeError: invalid device function; -v shows where"


def test_the_stack_trace_comes_with_v(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, fake_engine.UnstartableEngine)
    result = desk.extract("-v")
    assert result.exit_code == 1
    assert "Traceback (most recent call last):" in result.stderr


def test_what_would_fail_stops_it_before_the_load(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = eagle3.extraction.extract.Engine
    forbid_start(monkeypatch)
    exit_code, line = desk.fail("--tp", "3")
    assert exit_code == 2
    assert line.endswith("mend them, or start all the same with --no-preflight")
    monkeypatch.setattr(eagle3.extraction.extract, "Engine", start)
    assert desk.extract("--tp", "3", "--no-preflight").exit_code == 0


def test_weights_are_fetched_only_when_asked_for(desk: Desk) -> None:
    assert "prefetching: " not in desk.extract("--out", "one").stderr
    assert "prefetching: 0.0/0.0 GB, " in desk.extract("--out", "two", "--prefetch").stderr


def test_the_time_to_fill_the_disk_is_told_where_shards_tell_it(desk: Desk) -> None:
    desk.write(*(f'{{"input_ids": [{token}]}}' for token in range(20)))
    small = ("--shard-size", "50", "--max-tokens-per-step", "2")
    assert desk.extract(*small).exit_code == 0
    shards = sorted((desk.folder / "eagle3-out").glob("shard-*"))
    for number, shard in enumerate(shards):
        os.utime(shard, (number, number))
    shards[0].unlink()
    result = desk.extract()
    assert re.search(r"out: .* free; 0:\d\d at the [\d.]+ kB/s of the shards before", result.stderr)


def test_a_target_that_repeats_itself_is_stopped_and_leaves_nothing(desk: Desk) -> None:
    # Whatever the states are, this head makes them into one token.
    matrix = np.zeros((320, HIDDEN_SIZE), np.float32)
    matrix[7] = 1
    tensors = {
        "model.layers.0.weight": np.zeros(1, np.float32),
        "model.norm.weight": np.ones(HIDDEN_SIZE, np.float32),
        "lm_head.weight": matrix,
    }
    save_file(tensors, desk.folder / "target" / "model.safetensors")
    config = desk.folder / "target" / "config.json"
    facts = {"rms_norm_eps": 1e-5, "num_hidden_layers": 1}
    config.write_text(json.dumps(json.loads(config.read_text()) | facts))
    desk.write(json.dumps({"input_ids": list(range(20))}))
    exit_code, line = desk.fail("--layers", "0")
    assert exit_code == 3
    assert "the target chooses token 7 after 8 of 8 rows: its states mean nothing" in line
    assert desk.extract("--layers", "0", "--no-preflight").exit_code == 0
