"""Rows to samples, in as many processes as there are cores.

A chunk of rows goes to a process and comes back as one Arrow table and one outcome a row. Chunks
come back in the order of the data, so that the number of processes makes no difference.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from copy import replace
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from eagle3.chat.chat_template import ChatTemplate, load_chat_template
from eagle3.chat.conversation import Conversation, NothingToTrainOnError
from eagle3.chat.formats import detect_format, parse_row
from eagle3.chat.jsonl import Record
from eagle3.chat.pattern import Pattern, Patterns
from eagle3.chat.plain import read_plain
from eagle3.chat.supervision import tokenize_turns
from eagle3.chat.token_sequence import TokenSequence
from eagle3.errors import Eagle3Error, InputError
from eagle3.preparation.lengths import Fitted, fit_conversation, fit_tokens
from eagle3.preparation.request import PreparationRequest
from eagle3.preparation.samples import Samples
from eagle3.preparation.sources import Chunk, RawRow, as_content, parse_raw
from eagle3.preparation.target import Target

_CHUNKS_AHEAD = 3

OutcomeKind = Literal["success", "skipped", "error"]


class Outcome(NamedTuple):
    """What became of one row. `content` is the row itself, of one that was not taken.

    `answers` counts those that the target generated for it, `faults` those that are degenerate.
    """

    place: str
    kind: OutcomeKind
    form: str = "unknown"
    samples: int = 0
    cut: int = 0
    dropped: int = 0
    reason: str = ""
    content: str | dict[str, Any] | None = None
    answers: int = 0
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class TokenizedChunk:
    """`table` holds the samples of all rows, in order, in SCHEMA."""

    outcomes: list[Outcome]
    table: pa.Table
    bytes_read: int


class _Row(NamedTuple):
    """A row as it was read: `found` is what it holds, or what is wrong with it.

    `texts` are what `pattern` wants encoded; what a plain row holds is only looked at again where
    the pattern cannot tell its tokens.
    """

    place: str
    form: str
    content: RawRow
    found: Conversation | TokenSequence | Record | InputError
    pattern: Pattern | None = None
    texts: Sequence[str] = ()


class RowTokenizer:
    """Makes samples of rows; the tokenizer is opened when the first conversation is met."""

    def __init__(self, request: PreparationRequest, target: Target) -> None:
        self._request = request
        self._target = target

    def __call__(self, chunk: Chunk) -> TokenizedChunk:
        parsed = [self._parse(*row) for row in chunk.rows()]
        # All contents in one call: a tokenizer asked for them one by one is slower.
        texts = [text for row in parsed for text in row.texts]
        encoded = iter(self._template.encode_all(texts) if texts else ())
        outcomes = []
        samples = Samples()
        for row in parsed:
            if row.pattern and samples.join(row.pattern, encoded, self._target.max_model_len):
                outcomes.append(Outcome(row.place, "success", row.form, 1))
                continue
            outcome, sequences = self._outcome(row)
            outcomes.append(outcome)
            samples.add_row(sequences)
        return TokenizedChunk(outcomes, samples.table(), chunk.bytes_read)

    def _parse(self, place: str, content: RawRow) -> _Row:
        form = self._request.form or "unknown"
        try:
            record = parse_raw(place, content)
            plain = read_plain(record.fields, self._request.form)
            form = plain.form if plain else self._request.form or detect_format(record)
            found = record if plain else self._read(record, form)
        except InputError as error:
            return _Row(place, form, content, error)
        # A tokenizer that cannot be opened is no fault of the row, and ends the run.
        if plain is not None:
            contents = plain.contents
            pattern = self._patterns.find_plain(plain.roles, contents)
        elif isinstance(found, Conversation):
            contents = [message.content for message in found.messages]
            pattern = self._patterns.find(found)
        else:
            return _Row(place, form, content, found)
        texts = pattern.texts(contents) if pattern else ()
        return _Row(place, form, content, found, pattern, texts)

    def _read(self, record: Record, form: str) -> Conversation | TokenSequence:
        found = parse_row(record, form)
        if isinstance(found, TokenSequence) or self._request.reasoning == "keep":
            return found
        messages = tuple(replace(message, reasoning="") for message in found.messages)
        return replace(found, messages=messages)

    def _outcome(self, row: _Row) -> tuple[Outcome, Sequence[TokenSequence]]:
        """What became of `row`, of which no pattern told the tokens, and its samples."""
        try:
            fitted = self._fit(row)
        except InputError as error:
            kind = "skipped" if isinstance(error, NothingToTrainOnError) else "error"
            reason = str(error).removeprefix(row.place).removeprefix(": ")
            content = as_content(row.content)
            return Outcome(row.place, kind, row.form, reason=reason, content=content), ()
        if fitted.samples:
            counts = len(fitted.samples), fitted.cut, fitted.dropped
            return Outcome(row.place, "success", row.form, *counts), fitted.samples
        reason = f"longer than {self._target.max_model_len:,} tokens"
        content = as_content(row.content)
        return Outcome(row.place, "skipped", row.form, 0, 0, fitted.dropped, reason, content), ()

    def _fit(self, row: _Row) -> Fitted:
        policy, length = self._request.long, self._target.max_model_len
        found = self._read(row.found, row.form) if isinstance(row.found, Record) else row.found
        if isinstance(found, InputError):
            raise found
        if isinstance(found, TokenSequence):
            self._check_tokens(found)
            return fit_tokens(found, policy, length)
        return fit_conversation(found, self._tokenize, policy, length)

    def _tokenize(self, conversation: Conversation) -> list[TokenSequence]:
        sequences = tokenize_turns(conversation, self._template)
        if len(sequences) == 1 or self._request.history == "split":
            return sequences
        if self._request.history == "last":
            return sequences[-1:]
        raise InputError(
            f"{conversation.place}: the tokens of earlier turns change when later turns follow, "
            "and --history refuse was given"
        )

    @cached_property
    def _template(self) -> ChatTemplate:
        return load_chat_template(
            self._request.model,
            trust_remote_code=self._request.trust_remote_code,
            date=self._request.date,
        )

    @cached_property
    def _patterns(self) -> Patterns:
        return Patterns(self._template)

    def _check_tokens(self, sequence: TokenSequence) -> None:
        if all(sequence.loss_mask):
            raise InputError(
                f"{sequence.place}: every token is supervised, so nothing tells what the target "
                "was given; add a `loss_mask`"
            )
        outside = [
            token for token in sequence.input_ids if not 0 <= token < self._target.vocab_size
        ]
        if outside:
            raise InputError(
                f"{sequence.place}: token id {outside[0]} is not in the target's vocabulary (0 to "
                f"{self._target.vocab_size - 1})"
            )


def tokenize_chunks(
    chunks: Iterable[Chunk], request: PreparationRequest, target: Target
) -> Iterator[TokenizedChunk]:
    """Yields each chunk tokenized, in order; with one worker, in this process.

    At most a few chunks a process are ever on the way, so that memory stays flat. Raises
    InputError where the tokenizer cannot be opened.
    """
    if request.workers == 1:
        yield from map(RowTokenizer(request, target), chunks)
        return
    pool = ProcessPoolExecutor(
        request.workers,
        # Forked processes would inherit the locks of Arrow's and the tokenizer's threads.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(request, target),
    )
    pending: deque[Future[TokenizedChunk]] = deque()
    try:
        for chunk in chunks:
            pending.append(pool.submit(_work, chunk))
            if len(pending) >= request.workers * _CHUNKS_AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise Eagle3Error(
            "a process that tokenizes was killed, perhaps for want of memory; lower --workers"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


_worker: RowTokenizer | None = None


def _start_worker(request: PreparationRequest, target: Target) -> None:
    global _worker
    # Each process has one core; the tokenizer's own threads would only fight for it.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # A tokenizer needs no torch, which takes 2 s and 300 MB a process.
    os.environ.update(USE_TORCH="0", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")
    # Ctrl-C reaches all processes; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    _worker = RowTokenizer(request, target)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(chunk: Chunk) -> TokenizedChunk:
    assert _worker is not None
    return _worker(chunk)
