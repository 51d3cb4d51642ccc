"""Holds many dialogues at once: a bounded window of them, in the engine's continuous batches."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

from eagle3.chat.token_sequence import TokenSequence
from eagle3.engine.generation import Generated
from eagle3.generation.dialogue import Asker, Dialogue, Finished
from eagle3.generation.journal import Journal


class Generator(Asker, Protocol):
    """What holding dialogues needs of the engine."""

    sequences_at_once: int

    def step(self) -> list[Generated]: ...


@dataclass(frozen=True)
class Row:
    """Where a dialogue comes from; `content` is the row as it was read.

    Without a dialogue, `refusal` and `reason` say why it cannot be held.
    """

    place: str
    form: str
    content: str | dict[str, Any]
    dialogue: Dialogue | None = None
    refusal: Literal["skipped", "error"] | None = None
    reason: str = ""


def hold(
    rows: Iterator[Row],
    engine: Generator,
    journal: Journal,
    window: Callable[[], int],
    on_tokens: Callable[[int], None],
) -> Iterator[tuple[Row, Finished | None]]:
    """Yields each row with what became of its dialogue, in the order of the rows.

    At most `window()` rows are on the way. What is in `journal` is not generated again, and all
    else goes into it as soon as it is finished. `on_tokens` is told of tokens as they come.
    """
    waiting: deque[Row] = deque()
    running: dict[str, Dialogue] = {}
    while True:
        while len(waiting) < window() and (row := next(rows, None)) is not None:
            waiting.append(row)
            dialogue = row.dialogue
            # The same conversation again, in the data or since a kill, is the same dialogue.
            if dialogue and dialogue.key not in running and dialogue.key not in journal:
                _ask(dialogue, engine, running, journal)
        if not waiting:
            return
        head = waiting[0].dialogue
        if head is None or head.key in journal:
            row = waiting.popleft()
            yield row, from_entry(head.key, journal.read(head.key)) if head else None
            continue
        for generated in engine.step():
            dialogue = running.pop(generated.key)
            on_tokens(len(generated.ids))
            dialogue.take(generated)
            _ask(dialogue, engine, running, journal)


def _ask(
    dialogue: Dialogue, engine: Generator, running: dict[str, Dialogue], journal: Journal
) -> None:
    if dialogue.finished is None:
        dialogue.ask(engine)
    if dialogue.finished is None:
        running[dialogue.key] = dialogue
    else:
        journal.write(dialogue.key, to_entry(dialogue.finished))


def to_entry(finished: Finished) -> dict[str, Any]:
    """`finished` as JSON: of a mask the lengths of its runs, the first of them of zeros."""
    return {
        "samples": [[*map(list, (sample.input_ids, _runs(sample)))] for sample in finished.samples],
        "reason": finished.reason,
        "answers": finished.answers,
        "faults": finished.faults,
        "question": finished.question,
    }


def from_entry(place: str, entry: dict[str, Any]) -> Finished:
    samples = []
    for ids, runs in entry["samples"]:
        mask = (bit for turn, run in enumerate(runs) for bit in [turn % 2] * run)
        samples.append(TokenSequence(place, tuple(ids), tuple(mask)))
    return Finished(
        tuple(samples),
        entry["reason"],
        entry["answers"],
        tuple(entry["faults"]),
        entry["question"],
    )


def _runs(sample: TokenSequence) -> list[int]:
    mask = sample.loss_mask
    borders = [place for place in range(1, len(mask)) if mask[place] != mask[place - 1]]
    return [end - start for start, end in pairwise([0, *borders, len(mask)])]
