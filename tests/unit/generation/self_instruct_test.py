"""The target asks, too: as many conversations as were wanted, each question once."""

import json
from pathlib import Path
from typing import Any

import pytest

from eagle3.errors import EngineError
from eagle3.generation.generate import generate
from eagle3.preparation.dataset import read_dataset, read_description
from eagle3.progress import Progress
from tests.unit.fake_generator import FakeGenerator
from tests.unit.generation.requests import make_request, speech_of

_USUAL: dict[str, Any] = {"conversations": 25}
TEXTS = ("What is {}, would you say?", "Is it true about {}?", "It is {}.", "", "~~~~~~~~~~~~")


def run(folder: Path, *texts: str, at_once: int = 2, **options: Any) -> tuple[Any, FakeGenerator]:
    request = make_request(folder, **{**_USUAL, **options})
    engine = FakeGenerator(speech_of(request.preparation.model, *(texts or TEXTS)), at_once)
    return generate(request, Progress(), engine), engine


def test_as_many_as_were_wanted(tmp_path: Path) -> None:
    report, engine = run(tmp_path)
    statistics = report.statistics
    assert statistics.rows["success"] == statistics.samples["train"] == 25
    assert statistics.rows.total() == statistics.rows_read > 25
    reasons = {reason for _, reason in statistics.reasons}
    assert {"question: empty", "question: hardly a letter", "answer: empty"} <= reasons
    assert read_description(report.out)["generation"]["kind"] == "self-instruct"
    # Little is begun that nobody wants any more.
    assert len(engine.submitted) < 2 * statistics.rows_read + 8


def test_how_many_run_at_once_changes_nothing(tmp_path: Path) -> None:
    digests = {
        run(tmp_path, out=f"out{number}", at_once=number)[0].dataset_sha256 for number in (1, 50)
    }
    assert len(digests) == 1


def test_seeds_choose_what_is_written(tmp_path: Path) -> None:
    digests = {run(tmp_path, out=f"{seed}", seed=seed)[0].dataset_sha256 for seed in (0, 1)}
    assert len(digests) == 2


def test_a_question_is_taken_once(tmp_path: Path) -> None:
    report, _ = run(tmp_path, "Why is the sky blue?", "why is the SKY blue ", "And what is {}?")
    rejects = [json.loads(line) for line in (report.out / "rejects.jsonl").open()]
    again = [reject["row"] for reject in rejects if reject["reason"] == "question: asked before"]
    assert {row.lower().strip(" ?") for row in again} == {"why is the sky blue"}
    assert report.statistics.rows["success"] == 25


def test_few_tokens_begin_few_conversations(tmp_path: Path) -> None:
    report, engine = run(tmp_path, conversations=1000, tokens=200, at_once=500)
    assert report.statistics.rows["success"] >= 1
    assert engine.most_running < 20


def test_it_stops_at_so_many_tokens(tmp_path: Path) -> None:
    report, _ = run(tmp_path, conversations=1000, tokens=2000)
    longest = max(len(sample.input_ids) for sample in read_dataset(report.out))
    assert 2000 <= report.statistics.tokens < 2000 + longest


def test_conversations_may_have_several_turns(tmp_path: Path) -> None:
    report, _ = run(tmp_path, "And what about {}, say?", conversations=4, turns=3)
    for sample in read_dataset(report.out):
        # It begins with what the target was given, and ends with an answer.
        rises = sum(
            after > before
            for before, after in zip(sample.loss_mask, sample.loss_mask[1:], strict=False)
        )
        assert rises == 3


def test_a_target_that_cannot_chat_is_told(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"of 201 conversations .* only 0 can be used \(the last"):
        run(tmp_path, "~~~~~~~~~~~~")
