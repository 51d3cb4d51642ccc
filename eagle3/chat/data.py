"""A JSONL file as token sequences, one a line, whatever kind of lines it holds."""

from collections.abc import Iterator
from pathlib import Path

from eagle3.chat.chat_template import ChatTemplate, load_chat_template
from eagle3.chat.formats import detect_format, parse_row
from eagle3.chat.jsonl import read_jsonl
from eagle3.chat.supervision import tokenize_conversation
from eagle3.chat.token_sequence import TokenSequence
from eagle3.errors import InputError


def read_token_sequences(
    path: Path, model: Path, limit: int | None = None, *, trust_remote_code: bool = False
) -> Iterator[TokenSequence]:
    """Yields the lines of the JSONL file `path` in order, at most `limit` of them.

    The tokenizer in the folder `model` is opened when the first conversation is met. Raises
    InputError, with the line, for the first line that cannot become exactly one sample.
    """
    template: ChatTemplate | None = None
    for record in read_jsonl(path, limit):
        row = parse_row(record, detect_format(record))
        if isinstance(row, TokenSequence):
            yield row
            continue
        if not row.is_plain:
            raise InputError(
                f"{record.place}: tools and reasoning cannot be rendered here; prepare the data "
                "with //eagle3:prepare"
            )
        template = template or load_chat_template(model, trust_remote_code=trust_remote_code)
        yield tokenize_conversation(row, template)
