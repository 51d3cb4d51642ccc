"""Every family's conversations become the samples in its golden file, token by token."""

import datetime
from pathlib import Path

import pytest

from eagle3.chat.chat_template import ChatTemplate, load_chat_template
from eagle3.chat.conversation import Conversation
from eagle3.chat.segments import Segmenter
from eagle3.chat.supervision import tokenize_turns
from eagle3.errors import InputError
from tests.unit.chat.conversations import ROWS, golden, parse
from tests.unit.chat.families import FAMILIES, make_family

_GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def template(family: str, tmp_path: Path) -> ChatTemplate:
    target = make_family(tmp_path / "target", FAMILIES[family])
    return load_chat_template(target, date=datetime.date(2025, 1, 31))


def test_samples_are_those_of_the_golden_file(family: str, template: ChatTemplate) -> None:
    assert golden(template) == (_GOLDEN / f"{family}.txt").read_text(encoding="utf-8")


def test_every_family_has_a_golden_file() -> None:
    assert {path.stem for path in _GOLDEN.glob("*.txt")} == set(FAMILIES)


@pytest.mark.parametrize("name", ROWS)
def test_cutting_beside_special_tokens_changes_nothing(
    name: str, template: ChatTemplate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sequences(conversation: Conversation) -> object:
        try:
            return tokenize_turns(conversation, template)
        except InputError as error:
            return str(error)

    quick = sequences(parse(name))
    monkeypatch.setattr(Segmenter, "encode", lambda self, answers: None)
    assert sequences(parse(name)) == quick


def test_cutting_is_possible_for_all_but_sentencepiece(
    family: str, template: ChatTemplate, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    encode = Segmenter.encode

    def spy(self: Segmenter, answers: object) -> object:
        found.append(encode(self, answers))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(Segmenter, "encode", spy)
    tokenize_turns(parse("multi-turn"), template)
    assert all(found) == (not FAMILIES[family].metaspace)
