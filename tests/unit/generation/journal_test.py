"""The journal: whole lines count, a torn one does not, and it belongs to one run."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from eagle3.chat.token_sequence import TokenSequence
from eagle3.errors import StoreError
from eagle3.generation.dialogue import Finished
from eagle3.generation.hold import from_entry, to_entry
from eagle3.generation.journal import Journal

RUN: dict[str, Any] = {"seed": 0, "temperature": 0.5}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "journal.jsonl"
    with Journal(path, RUN) as journal:
        journal.write("a", {"value": 1})
        journal.write("b", {"value": [2, 2]})
    return path


def test_what_was_written_is_there_again(path: Path) -> None:
    with Journal(path, RUN) as journal:
        assert len(journal) == 2
        assert "a" in journal
        assert "c" not in journal
        journal.write("c", {"value": 3})
        assert [journal.read(key)["value"] for key in "bca"] == [[2, 2], 3, 1]
        journal.write("d", {"value": 4})
    assert len(path.read_text().splitlines()) == 5


def test_any_torn_last_line_is_cut_off(path: Path) -> None:
    whole = path.read_bytes()
    last = whole.rindex(b'{"id":"b"')
    for length in range(last, len(whole)):
        path.write_bytes(whole[:length])
        with Journal(path, RUN) as journal:
            assert ("a" in journal, "b" in journal) == (True, False)
            journal.write("b", {"value": [2, 2]})
        assert path.read_bytes() == whole


def test_a_torn_first_line_begins_anew(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:9])
    with Journal(path, RUN) as journal:
        assert len(journal) == 0
    assert json.loads(path.read_text()) == RUN


def test_the_journal_of_another_run_is_refused(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"begun with another temperature, turns; go on as it was"):
        Journal(path, {"seed": 0, "temperature": 0.7, "turns": 2})
    assert path.read_bytes() == before


def test_a_damaged_line_in_the_middle_is_told(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'{"id":"a"', b'{"id:"a"'))
    with pytest.raises(StoreError, match="damaged in line 2"):
        Journal(path, RUN)


@pytest.mark.parametrize(
    ("content", "line"), [("[1]\n", 1), ("7\n", 1), ('{"seed":0,"temperature":0.5}\n{"id":1}\n', 2)]
)
def test_what_is_no_journal_is_told(path: Path, content: str, line: int) -> None:
    path.write_text(content)
    with pytest.raises(StoreError, match=f"damaged in line {line}; remove it"):
        Journal(path, RUN)


def test_of_what_is_there_the_ids_alone_are_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million conversations are gigabytes of token ids."""
    read = json.loads
    lines: list[bytes] = []
    monkeypatch.setattr(json, "loads", lambda line: lines.append(line) or read(line))
    with Journal(path, RUN) as journal:
        assert len(journal) == 2
    assert len(lines) == 1


def test_a_disk_that_refuses_to_sync_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreError, match=r"cannot write .*: No space left"), Journal(path, RUN):
        pass


def test_two_runs_cannot_write_one_journal(path: Path) -> None:
    with Journal(path, RUN), pytest.raises(StoreError, match="being written by another run"):
        Journal(path, RUN)
    with Journal(path, RUN) as journal:
        journal.remove()
    assert not path.exists()


def test_a_finished_dialogue_comes_back_as_it_was() -> None:
    samples = (
        TokenSequence("p", (5, 6, 7, 8), (0, 1, 1, 0)),
        TokenSequence("p", (5, 6), (0, 1)),
        TokenSequence("p", (9,), (0,)),
    )
    finished = Finished(samples, "", 3, ("loop",), "Why?")
    assert from_entry("p", json.loads(json.dumps(to_entry(finished)))) == finished
