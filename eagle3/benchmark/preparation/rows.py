"""Synthetic conversations: words of real ones, no two alike."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eagle3.chat.formats import detect_format, parse_questions
from eagle3.chat.jsonl import read_jsonl


@dataclass(frozen=True)
class Shape:
    """`rows` conversations of `answers` answers; questions and answers of so many words."""

    name: str
    rows: int
    answers: int
    question_words: int
    answer_words: int


SHAPES = (
    Shape("one short answer", 8000, 1, 6, 16),
    Shape("two answers", 1600, 2, 40, 120),
    Shape("six answers", 1200, 6, 20, 40),
)


def words_of(conversations: Path) -> list[str]:
    """The words in the questions of the JSONL file `conversations`."""
    rows = (parse_questions(row, detect_format(row)) for row in read_jsonl(conversations))
    return [word for row in rows for turn in row.messages for word in turn.content.split(" ")]


def write_rows(path: Path, shape: Shape, words: Sequence[str], scale: float = 1.0) -> Path:
    """Writes `scale` times the rows of `shape` as JSONL of `messages`; always the same ones."""
    chosen = random.Random(0)

    def say(count: int) -> str:
        begin = chosen.randrange(max(1, len(words) - count))
        return f"{chosen.randrange(10**6)} {' '.join(words[begin : begin + count])}"

    lengths = {"user": shape.question_words, "assistant": shape.answer_words}
    with path.open("w", encoding="utf-8") as file:
        for _ in range(max(1, round(scale * shape.rows))):
            turns = [
                {"role": role, "content": say(count)}
                for _ in range(shape.answers)
                for role, count in lengths.items()
            ]
            file.write(json.dumps({"messages": turns}) + "\n")
    return path
