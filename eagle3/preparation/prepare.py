"""The whole of a preparation, from what the user asks to the report."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from eagle3.chat.remote_code import describe_code, remote_code
from eagle3.errors import Eagle3Error, InputError
from eagle3.preparation.bar import reading_bar
from eagle3.preparation.dataset import PARTS, VOCABULARY, DatasetWriter
from eagle3.preparation.page import write_page
from eagle3.preparation.request import PreparationRequest
from eagle3.preparation.sources import Chunk, find_files, read_chunks
from eagle3.preparation.split import is_validation
from eagle3.preparation.statistics import Statistics
from eagle3.preparation.target import Target, read_target
from eagle3.preparation.tokenizing import TokenizedChunk, tokenize_chunks
from eagle3.preparation.vocabulary import TokenFrequencies, write_frequencies
from eagle3.progress import Progress

LENGTHS_PAGE = "lengths.html"


@dataclass(frozen=True)
class PreparationReport:
    """What lies in `out` now. `shown` are the first samples, as many as were asked for."""

    out: Path
    dataset_sha256: str
    statistics: Statistics
    frequencies: TokenFrequencies
    shown: list[dict[str, Any]]


def prepare(request: PreparationRequest, progress: Progress) -> PreparationReport:
    """Reads all data, makes samples and writes them to a new folder.

    Raises InputError where nothing could be prepared, and StoreError where the folder cannot be
    written; nothing stays then.
    """
    target = read_target(request.model, request.max_model_len)
    if request.trust_remote_code:
        code = remote_code(request.model)
        progress.say(f"running the model's own code: {describe_code(code) or 'it has none'}")
    files = find_files(request.data)
    statistics = Statistics(target.vocab_size, target.max_model_len)
    shown: list[dict[str, Any]] = []
    with (
        DatasetWriter(request.out) as writer,
        reading_bar(sum(path.stat().st_size for path in files)) as bar,
    ):
        chunks = _counted(read_chunks(files, request.limit), statistics)
        for chunk in tokenize_chunks(chunks, request, target):
            _take(chunk, request, writer, statistics, shown)
            rows = statistics.rows.total()
            bar.update(bytes_read=chunk.bytes_read, rows=rows, tokens=statistics.tokens)
        _check(statistics, request)
        digest, hashes = writer.finish()
        frequencies = TokenFrequencies(digest, statistics.supervised_counts)
        write_frequencies(writer.folder / VOCABULARY, frequencies)
        if request.html:
            write_page(writer.folder / LENGTHS_PAGE, request.data.name, statistics)
        writer.commit(_describe(request, target, statistics, digest, hashes))
    return PreparationReport(request.out, digest, statistics, frequencies, shown)


def _counted(chunks: Iterator[Chunk], statistics: Statistics) -> Iterator[Chunk]:
    for chunk in chunks:
        statistics.rows_read += chunk.row_count
        yield chunk


def _take(
    chunk: TokenizedChunk,
    request: PreparationRequest,
    writer: DatasetWriter,
    statistics: Statistics,
    shown: list[dict[str, Any]],
) -> None:
    """Writes the samples of `chunk` that are new, and accounts for each of its rows."""
    table = chunk.table
    new = writer.seen.add(table["id"].to_pylist())
    statistics.repeated += new.count(False)
    position = 0
    for outcome in chunk.outcomes:
        fresh = sum(new[position : position + outcome.samples])
        position += outcome.samples
        if outcome.kind == "success" and not fresh:
            outcome = replace(outcome, kind="skipped", reason="repeats an earlier row", samples=0)
        elif outcome.kind == "success":
            outcome = replace(outcome, samples=fresh)
        statistics.add_row(outcome)
        if outcome.kind != "success":
            writer.reject(outcome)
    table = table.filter(pa.array(new, pa.bool_()))
    held_out = np.fromiter(
        (
            is_validation(request.seed, conversation, request.validation_share)
            for conversation in table["conversation"].to_pylist()
        ),
        bool,
    )
    for part, members in (("validation", held_out), ("train", ~held_out)):
        samples = table.filter(pa.array(members))
        statistics.add_samples(part, samples)
        writer.write(part, samples)
    if len(shown) < request.show:
        shown += table.slice(0, request.show - len(shown)).to_pylist()


def _check(statistics: Statistics, request: PreparationRequest) -> None:
    rows = statistics.rows
    accounted = rows["success"] + rows["skipped"] + rows["error"]
    if accounted != statistics.rows_read:
        raise Eagle3Error(
            f"{statistics.rows_read:,} rows were read, but {accounted:,} are accounted for: this "
            "is a fault of the program, and nothing was written"
        )
    if not statistics.samples.total():
        most = statistics.reasons.most_common(1)
        why = f"; {most[0][1]:,} x {most[0][0][1]}" if most else ""
        raise InputError(f"no samples in {request.data} ({accounted:,} rows{why})")


def _describe(
    request: PreparationRequest,
    target: Target,
    statistics: Statistics,
    digest: str,
    hashes: dict[str, str],
) -> dict[str, Any]:
    """The content of dataset.json."""
    rows = statistics.rows
    return {
        "sha256": digest,
        "files": hashes,
        "data": request.data.name,
        "rows": {
            "input": statistics.rows_read,
            **{kind: rows[kind] for kind in ("success", "skipped", "error")},
        },
        "forms": dict(statistics.forms.most_common()),
        "samples": {part: statistics.samples[part] for part in PARTS},
        "tokens": statistics.tokens,
        "supervised_tokens": statistics.supervised,
        "target": {
            "name": target.name,
            "vocab_size": target.vocab_size,
            "tokenizer_sha256": target.tokenizer_sha256,
            "code_sha256": remote_code(request.model) if request.trust_remote_code else {},
        },
        "policy": {
            "max_model_len": target.max_model_len,
            "long": request.long,
            "history": request.history,
            "reasoning": request.reasoning,
            "date": str(request.date),
            "seed": request.seed,
            "validation_share": request.validation_share,
            "limit": request.limit,
        },
    }
