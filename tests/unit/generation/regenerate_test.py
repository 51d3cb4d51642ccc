"""The target answers the questions of the data: every row is accounted for, nothing is mixed up."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eagle3.errors import EngineError, InputError, StoreError
from eagle3.extraction.samples import read_samples
from eagle3.generation.generate import generate
from eagle3.preparation.collecting import PreparationReport
from eagle3.preparation.dataset import read_dataset, read_description
from eagle3.progress import Progress
from tests.unit.fake_generator import FakeGenerator
from tests.unit.generation.requests import make_request, speech_of, write_questions
from tests.unit.preparation import rows

ANSWERS = ("It is {}.", "I think it is {}, more or less.", "x")


def run(
    folder: Path, data: Path, *said: str, **options: Any
) -> tuple[PreparationReport, FakeGenerator]:
    request = make_request(folder, data, **options)
    engine = FakeGenerator(speech_of(request.preparation.model, *(said or ANSWERS)))
    return generate(request, Progress(), engine), engine


def test_every_row_is_accounted_for(tmp_path: Path) -> None:
    report, engine = run(tmp_path, rows.write_all(tmp_path / "d.jsonl"))
    statistics = report.statistics
    assert dict(statistics.rows) == {"success": 42, "skipped": 4, "error": 9}
    assert statistics.rows_read == 55
    assert dict(statistics.reasons)["skipped", "repeats an earlier row"] == 3
    reason = "token ids hold no questions to ask; give conversations"
    assert dict(statistics.reasons)["error", reason] == 4
    # What comes again is not asked again.
    assert len({submission.key for submission in engine.submitted}) == 42


def test_old_answers_play_no_part(tmp_path: Path) -> None:
    data = tmp_path / "d.jsonl"
    rows.write(data, [rows.conversation(5)])
    first, _ = run(tmp_path, data, out="a")
    foreign = rows.conversation(5)
    foreign["messages"][1]["content"] = "Something else."
    rows.write(data, [foreign])
    second, _ = run(tmp_path, data, out="b")
    assert first.dataset_sha256 == second.dataset_sha256


def test_samples_come_in_the_order_of_the_rows(tmp_path: Path) -> None:
    data = write_questions(tmp_path / "d.jsonl", 30)
    report, engine = run(tmp_path, data)
    assert 2 < engine.most_running <= 8
    decode = speech_decoder(report.out.parent / "target")
    asked = [decode(sample.input_ids) for sample in read_dataset(report.out)]
    assert [f"What is {number}, and" in text for number, text in enumerate(asked)] == [True] * 30
    description = read_description(report.out)
    generation = description["generation"]
    assert (generation["kind"], generation["temperature"]) == ("regenerate", 1.0)
    # Nothing of the work remains beside it.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.jsonl", "out", "target"]


def speech_decoder(target: Path) -> Any:
    from eagle3.chat.chat_template import load_chat_template

    return load_chat_template(target).tokenizer.decode


def test_the_window_changes_nothing(tmp_path: Path) -> None:
    data = write_questions(tmp_path / "d.jsonl", 30)
    digests = set()
    for number in (1, 3, 100):
        request = make_request(tmp_path, data, out=f"out{number}")
        speech = speech_of(request.preparation.model, *ANSWERS)
        digests.add(generate(request, Progress(), FakeGenerator(speech, number)).dataset_sha256)
    assert len(digests) == 1


def test_seeds_change_everything(tmp_path: Path) -> None:
    data = write_questions(tmp_path / "d.jsonl", 5)
    digests = {
        run(tmp_path, data, out=f"out{seed}", seed=seed)[0].dataset_sha256 for seed in (0, 1)
    }
    assert len(digests) == 2


def test_degenerate_answers_are_counted_and_set_aside(tmp_path: Path) -> None:
    data = write_questions(tmp_path / "d.jsonl", 40)
    report, _ = run(tmp_path, data, "It is {}.", "", "ha" * 30, "It is not so easy to say " * 3)
    faults = report.statistics.faults
    assert set(faults) == {"empty", "loop", "length"}
    assert report.statistics.rows["skipped"] == faults.total()
    assert report.statistics.rows["success"] == 40 - faults.total()
    rejects = [json.loads(line) for line in (report.out / "rejects.jsonl").open()]
    assert {reject["reason"] for reject in rejects} == {
        "answer: empty",
        "answer: loop",
        "answer: length",
    }
    assert "What is" in rejects[0]["row"]


LONG = "It is not so easy to say " * 3


def test_answers_that_are_mostly_too_long_are_told_early_and_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_questions(tmp_path / "d.jsonl", 300)
    run(tmp_path, data, "It is {}.", LONG, LONG)
    early, last = [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line]
    assert re.search(r"WARNING: \d+ of the first 128 answers had no end within --max-t", early)
    helps = "--max-tokens 64 and --max-model-len 512, and were dropped: raise both, with another"
    assert helps in early
    assert re.search(r"WARNING: \d+ of the 300 answers", last)
    assert last.endswith("--out; a target that thinks is asked not to with --reasoning drop")


def test_answers_that_are_all_too_long_are_told_before_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_questions(tmp_path / "d.jsonl", 5)
    with pytest.raises(InputError, match=r"no samples in d\.jsonl"):
        run(tmp_path, data, LONG, reasoning="drop")
    [line] = [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line]
    assert "5 of the 5 answers" in line
    assert "--reasoning" not in line


@pytest.mark.parametrize(
    ("said", "options"),
    [(("It is {}.", "x", LONG), {}), ((LONG,), {"on_degenerate": "keep"})],
)
def test_some_long_answers_or_ones_that_are_kept_are_no_cause_to_warn(
    tmp_path: Path,
    said: tuple[str, ...],
    options: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(tmp_path, write_questions(tmp_path / "d.jsonl", 20), *said, **options)
    assert "WARNING" not in capsys.readouterr().err


@pytest.mark.parametrize(("history", "samples"), [("last", 1), ("split", 2)])
def test_history_is_as_in_every_preparation(tmp_path: Path, history: str, samples: int) -> None:
    request = make_request(
        tmp_path, rows.write(tmp_path / "d.jsonl", [rows.conversation(1, 2)]), history=history
    )
    settings = request.preparation.model / "tokenizer_config.json"
    fields = json.loads(settings.read_text())
    # As Qwen's: an empty block asks the target not to think, and is dropped from earlier turns.
    fields["chat_template"] = fields["chat_template"].replace(
        "'<|begin|>assistant\n'", "'<|begin|>assistant\n<think></think>'"
    )
    settings.write_text(json.dumps(fields))
    engine = FakeGenerator(speech_of(request.preparation.model, "It is {}."))
    assert generate(request, Progress(), engine).statistics.samples.total() == samples


def test_extract_takes_what_was_generated(tmp_path: Path) -> None:
    report, _ = run(tmp_path, write_questions(tmp_path / "d.jsonl", 6))
    planned = read_samples(
        report.out,
        tmp_path / "target",
        limit=None,
        vocab_size=300,
        max_model_len=512,
        truncate=False,
    )
    assert len(planned.samples) == 6
    for sample in planned.samples:
        assert sample.loss_mask[-1] == 1
        assert 0 < sum(sample.loss_mask) < len(sample.loss_mask)


def test_nothing_is_started_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("taken")
    with pytest.raises(StoreError, match="is there already"):
        generate(
            make_request(tmp_path, write_questions(tmp_path / "d.jsonl", 1)),
            Progress(),
            lambda options: pytest.fail("the target was started"),
        )
    engine = FakeGenerator(lambda prompt, seed: [])
    with pytest.raises(InputError, match="no such file"):
        generate(make_request(tmp_path, tmp_path / "none", out="o"), Progress(), engine)


def test_a_load_that_would_fail_is_not_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = make_request(tmp_path, write_questions(tmp_path / "d.jsonl", 3), tensor_parallel=3)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=r"the first parallel; mend them, or .* --no-preflight"):
        generate(request, Progress(), lambda options: pytest.fail("the target was started"))
    assert "cannot be divided among 3 ranks; give another --tp" in capsys.readouterr().err
    # Nor is there a journal, which would not take another --tp.
    assert sorted(tmp_path.iterdir()) == before
    engine = FakeGenerator(speech_of(request.preparation.model, *ANSWERS))
    generate(replace(request, preflight=False), Progress(), engine)


def test_the_root_is_a_folder_that_is_there(tmp_path: Path) -> None:
    request = make_request(tmp_path, write_questions(tmp_path / "d.jsonl", 3))
    preparation = replace(request.preparation, out=Path("/"))
    with pytest.raises(StoreError, match=r"^/ is there already"):
        generate(
            replace(request, preparation=preparation), Progress(), FakeGenerator(lambda *_: [])
        )


def test_what_is_finished_survives_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_questions(tmp_path / "d.jsonl", 20)
    whole, _ = run(tmp_path, data, out="whole")
    request = make_request(tmp_path, data)
    speak = speech_of(request.preparation.model, *ANSWERS)
    said = 0

    def speak_and_fail(prompt: list[int], seed: int) -> Any:
        nonlocal said
        said += 1
        if said == 12:
            raise EngineError("the target failed: out of memory")
        return speak(prompt, seed)

    with pytest.raises(EngineError):
        generate(request, Progress(), FakeGenerator(speak_and_fail))
    assert "11 conversations are safe in" in capsys.readouterr().err
    assert not request.preparation.out.exists()
    report, engine = run(tmp_path, data)
    assert len(engine.submitted) == 20 - 11
    assert report.dataset_sha256 == whole.dataset_sha256
