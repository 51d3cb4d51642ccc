"""What a preparation counts while it runs; the size does not grow with the data."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from eagle3.preparation.tokenizing import Outcome

# Reasons name values that differ from row to row; so many different ones are told apart.
_MAX_REASONS = 1000


@dataclass
class Statistics:
    """Rows by what became of them, samples by length, tokens by id.

    `rows_read` is counted where rows are read, `rows` where their outcomes arrive. `lengths[n]`
    counts samples of n tokens, `supervised_counts[id]` supervised tokens of the training part.
    `answers` are those that the target generated, `faults` those of them that are degenerate.
    """

    vocab_size: int
    max_model_len: int
    rows_read: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    forms: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    samples: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    cut: int = 0
    too_long: int = 0
    in_several: int = 0
    tokens: int = 0
    supervised: int = 0
    answers: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.lengths = np.zeros(self.max_model_len + 1, np.int64)
        self.supervised_counts: np.ndarray = np.zeros(self.vocab_size, np.int64)

    def add_row(self, outcome: Outcome) -> None:
        self.rows[outcome.kind] += 1
        self.forms[outcome.form] += 1
        self.cut += outcome.cut
        self.too_long += outcome.dropped
        self.in_several += outcome.samples > 1
        self.answers += outcome.answers
        if outcome.faults:
            self.faults.update(outcome.faults)
        if outcome.reason:
            key = (outcome.kind, outcome.reason)
            if key not in self.reasons and len(self.reasons) >= _MAX_REASONS:
                key = (outcome.kind, "other reasons")
            self.reasons[key] += 1

    def add_samples(self, part: str, table: pa.Table) -> None:
        """Counts the samples of `table`, which go into `part`, train or validation."""
        if not table.num_rows:
            return
        ids = table["input_ids"].combine_chunks()
        tokens, lengths = ids.flatten().to_numpy(), np.diff(ids.offsets.to_numpy())
        mask = table["loss_mask"].combine_chunks().flatten().to_numpy().astype(bool)
        self.samples[part] += table.num_rows
        self.tokens += len(tokens)
        self.supervised += int(mask.sum())
        # In place: a count of every token of the vocabulary takes longer than a chunk has tokens.
        np.add.at(self.lengths, lengths, 1)
        if part == "train":
            self._grow(int(tokens.max()) + 1)
            np.add.at(self.supervised_counts, tokens[mask], 1)

    def quantile(self, share: float) -> int:
        """The length in tokens that `share` of the samples do not exceed."""
        cumulated = np.cumsum(self.lengths)
        return int(np.searchsorted(cumulated, max(1, np.ceil(share * cumulated[-1]))))

    def _grow(self, size: int) -> None:
        """Tokens that were added to the tokenizer after training have ids past the vocabulary."""
        missing = size - len(self.supervised_counts)
        if missing > 0:
            self.supervised_counts = np.pad(self.supervised_counts, (0, missing))
