"""A sample as text, cut where its loss mask changes."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from eagle3.store.sample import Sample


@dataclass(frozen=True)
class Span:
    """`text` of neighbouring tokens that are all supervised, or all not."""

    supervised: bool
    tokens: int
    text: str


def make_spans(
    sample: Sample, decode: Callable[[Sequence[int]], str], max_tokens: int | None = None
) -> list[Span]:
    """The first `max_tokens` tokens of `sample`, as few spans as its mask allows."""
    marked = zip(sample.loss_mask[:max_tokens], sample.input_ids, strict=False)
    spans = []
    for supervised, group in groupby(marked, key=lambda pair: bool(pair[0])):
        tokens = [token for _, token in group]
        spans.append(Span(supervised, len(tokens), decode(tokens)))
    return spans


def load_decoder(model: Path) -> Callable[[Sequence[int]], str]:
    """Decodes with the tokenizer in `model`; writes out the ids where there is none."""
    # Imported here: seconds long, and not needed where no text is shown.
    from transformers import AutoTokenizer

    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            model, local_files_only=True, trust_remote_code=False
        )
    # transformers raises whatever its tokenizer classes raise: OSError, ValueError, KeyError ...
    except Exception:
        return lambda tokens: " ".join(map(str, tokens))
    return lambda tokens: tokenizer.decode(tokens)
