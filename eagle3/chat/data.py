"""A data file as token sequences, whatever kind of lines it holds."""

from collections.abc import Iterator
from pathlib import Path

from eagle3.chat.chat_template import ChatTemplate, load_chat_template
from eagle3.chat.conversation import parse_conversation
from eagle3.chat.jsonl import read_jsonl
from eagle3.chat.supervision import tokenize_conversation
from eagle3.chat.token_sequence import TokenSequence, parse_token_sequence
from eagle3.errors import InputError


def read_token_sequences(
    path: Path, model: Path, limit: int | None = None
) -> Iterator[TokenSequence]:
    """Yields the lines of the JSONL file `path` in order, at most `limit` of them.

    The tokenizer in the folder `model` is opened when the first conversation is met. Raises
    InputError, with the line, for the first line that cannot become a sample.
    """
    template: ChatTemplate | None = None
    for record in read_jsonl(path, limit):
        kinds = record.fields.keys() & {"input_ids", "messages", "conversations"}
        if len(kinds) != 1:
            raise InputError(
                f"{record.place}: needs exactly one of `messages`, `conversations` and "
                f"`input_ids`, but has {' and '.join(sorted(kinds)) or 'none'}"
            )
        if kinds == {"input_ids"}:
            yield parse_token_sequence(record)
        else:
            template = template or load_chat_template(model)
            yield tokenize_conversation(parse_conversation(record), template)
