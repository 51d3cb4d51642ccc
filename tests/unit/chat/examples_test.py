"""The conversations that are shipped keep their promises."""

import json
from pathlib import Path

from runfiles import Runfiles

from eagle3.chat.data import read_token_sequences
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
