"""Every row is accounted for, and the folder is all there or not there."""

import contextlib
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from eagle3.chat.plain import PlainRow
from eagle3.errors import Eagle3Error, InputError, StoreError
from eagle3.preparation import prepare as module
from eagle3.preparation import tokenizing
from eagle3.preparation.dataset import DatasetWriter, read_dataset, read_description
from eagle3.preparation.prepare import PreparationReport, prepare
from eagle3.preparation.request import PreparationRequest
from eagle3.preparation.split import is_validation
from eagle3.preparation.vocabulary import read_frequencies
from eagle3.progress import Progress
from eagle3.store.sample import Sample, dataset_digest
from tests.unit.chat.families import FAMILIES, make_family
from tests.unit.preparation import rows
from tests.unit.tiny_target import make_target


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_target(tmp_path_factory.mktemp("model") / "target")


def run(data: Path, model: Path, out: Path, **options: Any) -> PreparationReport:
    return prepare(PreparationRequest(data=data, model=model, out=out, **options), Progress())


def contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_every_row_is_accounted_for(tmp_path: Path, model: Path) -> None:
    data = rows.write_all(tmp_path / "d.jsonl")
    statistics = run(data, model, tmp_path / "out").statistics
    taken = len(rows.GOOD) + len(rows.TOKENS)
    skipped = len(rows.REPEATED) + len(rows.SKIPPED)
    wrong = len(rows.WRONG) + 1
    assert dict(statistics.rows) == {"success": taken, "skipped": skipped, "error": wrong}
    assert statistics.rows_read == taken + skipped + wrong
    rejects = [json.loads(line) for line in (tmp_path / "out" / "rejects.jsonl").open()]
    assert len(rejects) == skipped + wrong
    assert rejects[0]["place"] == f"d.jsonl:{len(rows.GOOD) + 1}"
    assert rejects[0]["reason"] == "repeats an earlier row"
    assert rejects[3] == {
        "place": "d.jsonl:44",
        "outcome": "skipped",
        "reason": "a prompt without an answer",
        "row": '{"prompt": "No answer."}',
    }
    assert all(line["reason"] for line in rejects)
    assert rejects[-1]["row"] == "not JSON"


def test_a_quick_look_at_a_row_changes_nothing(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = [
        rows.conversation(number, turns)["messages"] for number in range(100) for turns in (1, 4)
    ]
    orders = [turns[1:] for turns in plain] + [turns[:1] for turns in plain]
    system = [[{"role": "system", "content": "Be brief."}, *turns] for turns in plain]
    late = [[turns[0], *turns] for turns in plain[::2]] + [[*turns, turns[0]] for turns in plain]
    ends = [
        [turns[0], {"role": "assistant", "content": f"{n}<|end|>"}]
        for n, turns in enumerate(plain[:20])
    ]
    data = rows.write_all(tmp_path / "d.jsonl")
    with data.open("a") as file:
        for turns in [*plain, *orders, *system, *late, *ends]:
            file.write(json.dumps({"messages": turns}) + "\n")
    options: dict[str, Any] = {"max_model_len": 120, "long": "split", "validation_share": 0.3}
    looks = []
    quick = tokenizing.read_plain

    def look(*arguments: Any) -> PlainRow | None:
        looks.append(quick(*arguments))
        return looks[-1]

    monkeypatch.setattr(tokenizing, "read_plain", look)
    run(data, model, tmp_path / "quick", **options)
    assert sum(found is not None for found in looks) > 1000
    monkeypatch.setattr(tokenizing, "read_plain", lambda *_: None)
    run(data, model, tmp_path / "slow", **options)
    assert contents(tmp_path / "quick") == contents(tmp_path / "slow")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("row", [rows.GOOD[0], {"prompt": "One?", "completion": "Second"}])
def test_a_tokenizer_that_cannot_be_opened_is_no_fault_of_the_rows(
    tmp_path: Path, workers: int, row: dict[str, Any]
) -> None:
    bare = make_target(tmp_path / "bare", chat_template=None)
    ready = rows.write(tmp_path / "ready.jsonl", [rows.TOKENS[0], {"text": "wrong"}])
    # Ready token ids need none.
    assert run(ready, bare, tmp_path / "out", workers=workers).statistics.samples.total() == 1
    data = rows.write(tmp_path / "d.jsonl", [rows.TOKENS[0], row])
    with pytest.raises(InputError, match=r"^the tokenizer in .* has no chat template"):
        run(data, bare, tmp_path / "none", workers=workers)
    assert not (tmp_path / "none").exists()


def test_a_row_that_gets_lost_is_noticed(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def losing(chunks: Any, request: Any, target: Any) -> Any:
        for chunk in whole(chunks, request, target):
            chunk.outcomes.pop()
            yield chunk

    whole = module.tokenize_chunks
    monkeypatch.setattr(module, "tokenize_chunks", losing)
    data = rows.write(tmp_path / "d.jsonl", [*rows.GOOD, {"text": "wrong"}])
    with pytest.raises(Eagle3Error, match="41 rows were read, but 40 are accounted for"):
        run(data, model, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["d.jsonl"]


def test_what_is_written_is_what_is_told(tmp_path: Path, model: Path) -> None:
    data = rows.write_all(tmp_path / "d.jsonl")
    out = tmp_path / "out"
    report = run(data, model, out, validation_share=0.3, seed=5)
    description = read_description(out)
    samples = [Sample(each.input_ids, each.loss_mask) for each in read_dataset(out)]
    assert description["sha256"] == dataset_digest(samples) == report.dataset_sha256
    assert description["tokens"] == sum(len(sample.input_ids) for sample in samples)
    assert description["supervised_tokens"] == sum(sum(sample.loss_mask) for sample in samples)
    assert description["rows"]["input"] == sum(
        description["rows"][kind] for kind in ("success", "skipped", "error")
    )
    counts = read_frequencies(out / "vocabulary.parquet", report.dataset_sha256).counts
    expected = [0] * len(counts)
    for part in ("train", "validation"):
        table = pq.read_table(out / f"{part}-00000.parquet").to_pylist()
        assert len(table) == description["samples"][part] > 0
        for row in table:
            sample = Sample(tuple(row["input_ids"]), tuple(row["loss_mask"]))
            assert row["id"] == sample.id
            assert is_validation(5, row["conversation"], 0.3) == (part == "validation")
            for token, supervised in zip(row["input_ids"], row["loss_mask"], strict=True):
                expected[token] += supervised * (part == "train")
    assert counts.tolist() == expected


def test_the_number_of_processes_makes_no_difference(tmp_path: Path, model: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    rows.write_all(data / "a.jsonl")
    rows.write(data / "b.jsonl", [rows.conversation(number) for number in range(100, 700)])
    for workers in (1, 2):
        run(data, model, tmp_path / f"out{workers}", workers=workers, validation_share=0.1)
    assert contents(tmp_path / "out1") == contents(tmp_path / "out2")


def test_an_unusable_tokenizer_is_told_by_every_process(tmp_path: Path) -> None:
    model = make_target(tmp_path / "target", chat_template=None)
    data = rows.write(tmp_path / "d.jsonl", rows.GOOD)
    for workers in (1, 2):
        with pytest.raises(InputError, match="has no chat template"):
            run(data, model, tmp_path / "out", workers=workers)


def test_ready_tokens_need_no_tokenizer(tmp_path: Path, model: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_text((model / "config.json").read_text())
    data = rows.write(tmp_path / "d.jsonl", rows.TOKENS)
    report = run(data, bare, tmp_path / "out")
    [sequence] = read_dataset(tmp_path / "out")
    assert (sequence.input_ids, sequence.loss_mask) == ((5, 6, 7), (0, 1, 1))
    assert report.statistics.supervised_counts[6] == 1


def test_no_samples_is_an_error_that_says_why(tmp_path: Path, model: Path) -> None:
    data = rows.write(tmp_path / "d.jsonl", [{"prompt": "One?"}, {"prompt": "Two?"}, {"x": 1}])
    with pytest.raises(InputError, match=r"\(3 rows; 2 x a prompt without an answer\)"):
        run(data, model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "config",
    [
        {"vocab_size": -1},
        {"vocab_size": "1000"},
        {"vocab_size": 1000, "max_position_embeddings": "4096"},
        {"vocab_size": 1000, "max_position_embeddings": 0},
    ],
)
def test_a_damaged_configuration_is_an_error_that_names_it(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    model = make_target(tmp_path / "target")
    (model / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"config\.json has no usable `vocab_size` and `max_pos"):
        run(rows.write(tmp_path / "d.jsonl", rows.GOOD), model, tmp_path / "out")


def test_a_format_by_name_is_the_only_one(tmp_path: Path, model: Path) -> None:
    both = {**rows.GOOD[0], "input_ids": [1, 2], "loss_mask": [0, 1]}
    data = rows.write(tmp_path / "d.jsonl", [both, rows.GOOD[1]])
    report = run(data, model, tmp_path / "out", form="tokens")
    assert dict(report.statistics.rows) == {"success": 1, "error": 1}


@pytest.mark.parametrize(("history", "samples"), [("split", 2), ("last", 1), ("refuse", 0)])
def test_rewritten_history_is_what_was_asked(tmp_path: Path, history: Any, samples: int) -> None:
    model = make_family(tmp_path / "target", FAMILIES["qwen3"])
    (model / "config.json").write_text('{"vocab_size": 1000}')
    data = rows.write(tmp_path / "d.jsonl", [rows.conversation(1, 2), *rows.TOKENS])
    report = run(data, model, tmp_path / "out", history=history)
    assert report.statistics.samples.total() == samples + 1
    sequences = list(read_dataset(tmp_path / "out"))[:samples]
    if history == "last":
        whole = tmp_path / "whole"
        run(data, model, whole)
        assert sequences[0].input_ids == list(read_dataset(whole))[1].input_ids


@pytest.mark.parametrize(("reasoning", "taken"), [("keep", 1), ("drop", 2)])
def test_reasoning_can_be_left_out(tmp_path: Path, model: Path, reasoning: Any, taken: int) -> None:
    row = rows.conversation(1)
    row["messages"][1]["reasoning_content"] = "One."
    data = rows.write(tmp_path / "d.jsonl", [row, *rows.TOKENS])
    report = run(data, model, tmp_path / "out", reasoning=reasoning)
    assert report.statistics.rows["success"] == taken


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path, model: Path) -> None:
    data = rows.write(tmp_path / "d.jsonl", rows.GOOD)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(StoreError, match="is there already"):
        run(data, model, tmp_path / "out")
    assert contents(tmp_path / "out").keys() == {"mine"}


def test_the_root_is_a_folder_that_is_there(tmp_path: Path, model: Path) -> None:
    with pytest.raises(StoreError, match=r"^/ is there already"):
        run(rows.write(tmp_path / "d.jsonl", rows.GOOD), model, Path("/"))


def test_two_runs_do_not_write_one_folder(tmp_path: Path, model: Path) -> None:
    data = rows.write(tmp_path / "d.jsonl", rows.GOOD)
    with DatasetWriter(tmp_path / "out") as writer:
        before = contents(writer.folder)
        with pytest.raises(StoreError, match=r"another run is writing to .*/out; "):
            run(data, model, tmp_path / "out")
        assert contents(writer.folder) == before
    run(data, model, tmp_path / "out")


@pytest.mark.parametrize("limit", [4096, 100_000, 200_000])
def test_a_full_disk_is_one_line_and_nothing_stays(tmp_path: Path, model: Path, limit: int) -> None:
    """A limit on the size of files, in the place of a full disk: the same errors come of it.

    It meets the ids that were seen, or the rows without a sample, or the samples.
    """
    bad = [{"messages": f"{number} " * 20} for number in range(2000)]
    good = [rows.conversation(number, 9) for number in range(1500)]
    data = rows.write(tmp_path / "d.jsonl", good + bad)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(StoreError, match=r"^cannot write .*\.out\.partial: "):
            run(data, model, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["d.jsonl"]


def test_a_file_that_was_changed_is_noticed(tmp_path: Path, model: Path) -> None:
    out = tmp_path / "out"
    run(rows.write(tmp_path / "d.jsonl", rows.GOOD), model, out)
    content = (out / "train-00000.parquet").read_bytes()
    (out / "train-00000.parquet").write_bytes(content[:-1] + b"x")
    with pytest.raises(InputError, match="is damaged"):
        list(read_dataset(out))


def test_a_killed_run_leaves_no_dataset_and_no_process(tmp_path: Path, model: Path) -> None:
    data = rows.write(tmp_path / "d.jsonl", [rows.conversation(n, 9) for n in range(20000)])
    out = tmp_path / "out"
    program = (
        "import pathlib, sys\n"
        "from eagle3.preparation.prepare import prepare\n"
        "from eagle3.preparation.request import PreparationRequest\n"
        "from eagle3.progress import Progress\n"
        "if __name__ == '__main__':\n"
        "    data, model, out = map(pathlib.Path, sys.argv[1:])\n"
        "    prepare(PreparationRequest(data, model, out, workers=2), Progress())\n"
    )
    script = tmp_path / "killed.py"
    script.write_text(program)
    process = subprocess.Popen(
        [sys.executable, script, data, model, out],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        start_new_session=True,
    )
    try:
        partial = tmp_path / ".out.partial"
        _wait_for(partial.exists)
        _wait_for(lambda: len(_group(process.pid)) >= 3)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        _wait_for(lambda: not _group(process.pid))
    finally:
        for member in _group(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
    assert not out.exists()
    run(rows.write(tmp_path / "d.jsonl", rows.GOOD), model, out)
    assert read_description(out)["samples"]["train"] == len(rows.GOOD)
    assert not partial.exists()


def _wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _group(leader: int) -> list[int]:
    """The living processes in the session of `leader`."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found
