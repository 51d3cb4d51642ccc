"""Rows of data as dialogues: what users said stays, what the target answers is its own."""

import hashlib
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from eagle3.chat.conversation import Conversation, NothingToTrainOnError
from eagle3.chat.formats import detect_format, parse_questions
from eagle3.chat.jsonl import Record
from eagle3.errors import InputError
from eagle3.generation.dialogue import Dialogue, DialogueRules, Finished
from eagle3.generation.hold import Row
from eagle3.preparation.sources import RawRow, as_content, find_files, parse_raw, read_chunks


class AskedRows:
    """The dialogues of the data at `path`, one a row, of at most `limit` rows.

    `form` None: told by the columns of each row. `size` and `done` count bytes of the data,
    `rows_read` the rows that were read and `taken` those that came back.
    """

    what = "answering"

    def __init__(
        self, path: Path, form: str | None, limit: int | None, rules: DialogueRules
    ) -> None:
        self.name = path.name
        self.rows_read = self.taken = self._bytes_read = 0
        self.is_complete = False
        self._files = find_files(path)
        self.size = sum(file.stat().st_size for file in self._files)
        self._form = form
        self.limit = limit
        self._rules = rules

    def rows(self) -> Iterator[Row]:
        """Yields each row; one that cannot be asked has no dialogue, but a reason."""
        for chunk in read_chunks(self._files, self.limit):
            self.rows_read += chunk.row_count
            self._bytes_read = chunk.bytes_read
            for place, row in chunk.rows():
                yield self._row(place, row)

    def _row(self, place: str, row: RawRow) -> Row:
        form, content = self._form or "unknown", as_content(row)
        try:
            record = parse_raw(place, row)
            form = self._form or detect_format(record)
            return Row(place, form, content, self._dialogue(record, form))
        except InputError as error:
            refusal = "skipped" if isinstance(error, NothingToTrainOnError) else "error"
            reason = str(error).removeprefix(place).removeprefix(": ")
            return Row(place, form, content, refusal=refusal, reason=reason)

    def _dialogue(self, record: Record, form: str) -> Dialogue:
        conversation = parse_questions(record, form)
        messages = conversation.messages
        if any(message.role == "tool" for message in messages):
            raise NothingToTrainOnError(
                f"{conversation.place}: a tool answers a call that the target may not make"
            )
        system = [message for message in messages if message.role == "system"]
        questions = [
            list(turns)
            for role, turns in groupby(messages, lambda turn: turn.role)
            if role == "user"
        ]
        key = _content_id(conversation)
        return Dialogue(key, self._rules, system, questions, conversation.tools)

    def ahead(self, most: int) -> int:
        """How many rows to have on the way, of at most `most`."""
        return most

    def take(self, finished: Finished | None) -> Finished | None:
        """Counts a row that came back."""
        self.taken += 1
        return finished

    @property
    def done(self) -> int:
        return self._bytes_read * self.taken // max(1, self.rows_read)


def _content_id(conversation: Conversation) -> str:
    """A hash of what the target is given, whatever was answered and wherever the row stands."""
    said = [[turn.role, turn.content] for turn in conversation.messages if turn.role != "assistant"]
    text = json.dumps([said, conversation.tools], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
