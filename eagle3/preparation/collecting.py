"""Takes tokenized chunks, whoever makes them, and writes what is new; counts each row once."""

from collections.abc import Iterator, Sequence
from copy import replace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from eagle3.chat.remote_code import remote_code
from eagle3.errors import Eagle3Error, InputError
from eagle3.preparation.dataset import PARTS, VOCABULARY, DatasetWriter
from eagle3.preparation.page import write_page
from eagle3.preparation.request import PreparationRequest
from eagle3.preparation.sources import Chunk
from eagle3.preparation.split import is_validation
from eagle3.preparation.statistics import Statistics
from eagle3.preparation.target import Target
from eagle3.preparation.tokenizing import Outcome, TokenizedChunk
from eagle3.preparation.vocabulary import TokenFrequencies, write_frequencies

LENGTHS_PAGE = "lengths.html"


@dataclass(frozen=True)
class PreparationReport:
    """What lies in `out` now. `shown` are the first samples, as many as were asked for."""

    out: Path
    dataset_sha256: str
    statistics: Statistics
    frequencies: TokenFrequencies
    shown: list[dict[str, Any]]


class Collector:
    """Fills the folder of `writer`. Rows are counted where they are read and again in `take`."""

    def __init__(self, request: PreparationRequest, target: Target, writer: DatasetWriter) -> None:
        self._request = request
        self._target = target
        self._writer = writer
        self._shown: list[dict[str, Any]] = []
        self.statistics = Statistics(target.vocab_size, target.max_model_len)

    def counted(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """`chunks`, with their rows counted as input."""
        for chunk in chunks:
            self.statistics.rows_read += chunk.row_count
            yield chunk

    def take(self, chunk: TokenizedChunk) -> None:
        """Writes the samples of `chunk` that are new, and accounts for each of its rows."""
        table, outcomes, statistics = chunk.table, chunk.outcomes, self.statistics
        new = self._writer.add_ids(table["id"].to_pylist())
        if not all(new):
            statistics.repeated += new.count(False)
            outcomes = list(_without_repeated(outcomes, new))
            table = table.filter(pa.array(new, pa.bool_()))
        for outcome in outcomes:
            statistics.add_row(outcome)
            if outcome.kind != "success":
                self._writer.reject(outcome)
        for part, samples in self._parts(table):
            statistics.add_samples(part, samples)
            self._writer.write(part, samples)
        missing = self._request.show - len(self._shown)
        if missing > 0:
            self._shown += table.slice(0, missing).to_pylist()

    def _parts(self, table: pa.Table) -> list[tuple[str, pa.Table]]:
        """`table` in its held-out part and the rest."""
        request = self._request
        if not request.validation_share:
            return [("train", table)]
        held_out = np.fromiter(
            (
                is_validation(request.seed, conversation, request.validation_share)
                for conversation in table["conversation"].to_pylist()
            ),
            bool,
        )
        return [
            ("validation", table.filter(pa.array(held_out))),
            ("train", table.filter(pa.array(~held_out))),
        ]

    def commit(self, data: str, generation: dict[str, Any] | None = None) -> PreparationReport:
        """Ends the dataset, made of what is called `data`, and gives its folder the name.

        `generation` says how the answers were made, where the target made them. Raises InputError
        without any sample.
        """
        request, statistics = self._request, self.statistics
        self._check(data)
        digest, hashes = self._writer.finish()
        frequencies = TokenFrequencies(digest, statistics.supervised_counts)
        with self._writer.explained():
            write_frequencies(self._writer.folder / VOCABULARY, frequencies)
            if request.html:
                write_page(self._writer.folder / LENGTHS_PAGE, data, statistics)
        description = self._describe(data, digest, hashes)
        if generation is not None:
            description["generation"] = generation
        self._writer.commit(description)
        return PreparationReport(request.out, digest, statistics, frequencies, self._shown)

    def _check(self, data: str) -> None:
        rows, read = self.statistics.rows, self.statistics.rows_read
        accounted = rows["success"] + rows["skipped"] + rows["error"]
        if accounted != read:
            raise Eagle3Error(
                f"{read:,} rows were read, but {accounted:,} are accounted for: this is a fault of "
                "the program, and nothing was written"
            )
        if not self.statistics.samples.total():
            most = self.statistics.reasons.most_common(1)
            why = f"; {most[0][1]:,} x {most[0][0][1]}" if most else ""
            raise InputError(f"no samples in {data} ({accounted:,} rows{why})")

    def _describe(self, data: str, digest: str, hashes: dict[str, str]) -> dict[str, Any]:
        """The content of dataset.json."""
        request, target, statistics = self._request, self._target, self.statistics
        rows = statistics.rows
        return {
            "sha256": digest,
            "files": hashes,
            "data": data,
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


def _without_repeated(outcomes: Sequence[Outcome], new: Sequence[bool]) -> Iterator[Outcome]:
    """`outcomes`, whose samples are `new` or not, with those that are not left out."""
    position = 0
    for outcome in outcomes:
        fresh = sum(new[position : position + outcome.samples])
        position += outcome.samples
        if fresh == outcome.samples:
            yield outcome
        elif fresh:
            yield replace(outcome, samples=fresh)
        else:
            yield replace(outcome, kind="skipped", reason="repeats an earlier row", samples=0)
