"""The conversations that are shipped keep their promises."""

import json
from collections import Counter
from pathlib import Path

from runfiles import Runfiles

from eagle3.chat.data import read_token_sequences
from eagle3.chat.formats import detect_format, parse_questions, parse_row
from eagle3.chat.jsonl import read_jsonl
from eagle3.command import data_path
from tests.unit.tiny_target import make_target


def shipped_conversations() -> Path:
    runfiles = Runfiles.Create()
    assert runfiles is not None
    location = runfiles.Rlocation("eagle3_training/examples/conversations.jsonl")
    assert location is not None
    return Path(location)


def test_every_shipped_conversation_becomes_a_sample(tmp_path: Path) -> None:
    sequences = list(read_token_sequences(shipped_conversations(), make_target(tmp_path / "t")))
    assert len(sequences) == 48
    assert len({sequence.input_ids for sequence in sequences}) == 48


def test_shared_prefixes_are_among_them() -> None:
    """Chat data that shares a system prompt or a question is where prefix caching would bite."""
    lines = shipped_conversations().read_text(encoding="utf-8").splitlines()
    openings = [json.dumps(json.loads(line)["messages"][0]) for line in lines]
    system = [opening for opening in openings if '"role": "system"' in opening]
    assert max(map(system.count, system)) >= 3
    questions = [opening for opening in openings if '"role": "user"' in opening]
    assert max(map(questions.count, questions)) == 2


KINDS = {
    "chat",
    "code",
    "extraction",
    "maths",
    "reasoning",
    "summary",
    "tool use",
    "writing",
}


def test_smoke_holds_answered_questions_of_every_kind() -> None:
    rows = list(read_jsonl(data_path("smoke")))
    assert len(rows) == 100
    assert {row.fields["kind"] for row in rows} == KINDS
    for row in rows:
        parse_row(row, detect_format(row))


def test_held_out_questions_are_ten_of_a_kind_in_turn() -> None:
    rows = list(read_jsonl(data_path("heldout")))
    assert Counter(row.fields["kind"] for row in rows) == dict.fromkeys(KINDS, 10)
    assert {row.fields["kind"] for row in rows[:8]} == KINDS
    assert all(detect_format(row) == "prompt" for row in rows)


def test_no_held_out_question_is_trained_on() -> None:
    asked = {
        turn.content
        for row in read_jsonl(data_path("smoke"))
        for turn in parse_questions(row, "messages").messages
    }
    held_out = [row.fields["prompt"] for row in read_jsonl(data_path("heldout"))]
    assert len(set(held_out)) == 80
    assert asked.isdisjoint(held_out)
