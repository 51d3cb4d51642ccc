"""All the work of a preparation, and the tokenizer's alone, in CPU seconds of the same process.

As many processes as there are cores measure at once, so that both sides meet the same machine. One
process does the work of all parts in turn: reading, handing rows to a process that tokenizes and
samples back, collecting, writing. So its CPU seconds are those of all processes of a preparation,
and the ratio of the two is that of their throughputs where all cores are busy.
"""

import multiprocessing
import os
import pickle
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

from eagle3.chat.chat_template import ChatTemplate, load_chat_template
from eagle3.chat.conversation import Conversation
from eagle3.chat.formats import detect_format, parse_row
from eagle3.preparation.collecting import Collector
from eagle3.preparation.dataset import DatasetWriter
from eagle3.preparation.request import PreparationRequest
from eagle3.preparation.sources import Chunk, parse_raw, read_chunks
from eagle3.preparation.target import Target, read_target
from eagle3.preparation.tokenizing import RowTokenizer


@dataclass(frozen=True)
class Speed:
    """CPU seconds for `rows` rows of `tokens` tokens in all."""

    rows: int
    tokens: int
    prepare_s: float
    tokenizer_s: float

    @property
    def share(self) -> float:
        """Of the tokenizer's own speed."""
        return self.tokenizer_s / self.prepare_s


def measure(request: PreparationRequest, processes: int, repeats: int) -> Speed:
    """The mean over `processes`, of the best of `repeats` in each; `request.data` is a file."""
    requests = [
        replace(request, out=request.out.with_name(f"{request.out.name}-{number}"))
        for number in range(processes)
    ]
    with ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start,
    ) as pool:
        speeds = list(pool.map(_measure_here, requests, [repeats] * processes))
    return replace(
        speeds[0],
        prepare_s=sum(speed.prepare_s for speed in speeds) / processes,
        tokenizer_s=sum(speed.tokenizer_s for speed in speeds) / processes,
    )


def _start() -> None:
    # As in a preparation's own processes: each has one core.
    os.environ.update(TOKENIZERS_PARALLELISM="false", USE_TORCH="0")


def _measure_here(request: PreparationRequest, repeats: int) -> Speed:
    assert request.data is not None
    target = read_target(request.model, request.max_model_len)
    template = load_chat_template(request.model, date=request.date)
    chunks = list(read_chunks([request.data]))
    tokenize = RowTokenizer(request, target)
    tokenize(chunks[0])  # opens the tokenizer
    texts = [_rendered(chunk, template) for chunk in chunks]
    sides = [
        (_prepare(request, target, tokenize), _encode(texts, template)) for _ in range(repeats)
    ]
    tokens = sides[0][1][1]
    return Speed(
        rows=sum(chunk.row_count for chunk in chunks),
        tokens=tokens,
        prepare_s=min(seconds for seconds, _ in sides),
        tokenizer_s=min(seconds for _, (seconds, _) in sides),
    )


def _prepare(request: PreparationRequest, target: Target, tokenize: RowTokenizer) -> float:
    assert request.data is not None
    began = time.process_time()
    with DatasetWriter(request.out) as writer:
        collector = Collector(request, target, writer)
        for chunk in collector.counted(read_chunks([request.data])):
            handed = pickle.loads(pickle.dumps(chunk))
            collector.take(pickle.loads(pickle.dumps(tokenize(handed))))
        writer.finish()
        seconds = time.process_time() - began
    return seconds


def _encode(texts: Sequence[Sequence[str]], template: ChatTemplate) -> tuple[float, int]:
    """CPU seconds and tokens of one call a chunk, its ids as lists."""
    tokens = 0
    encode = template.tokenizer.backend_tokenizer.encode_batch_fast
    began = time.process_time()
    for chunk in texts:
        for encoding in encode(chunk, add_special_tokens=False):
            tokens += len(encoding.ids)
    return time.process_time() - began, tokens


def _rendered(chunk: Chunk, template: ChatTemplate) -> list[str]:
    rendered = []
    for place, content in chunk.rows():
        record = parse_raw(place, content)
        row = parse_row(record, detect_format(record))
        assert isinstance(row, Conversation)
        rendered.append(template.text(row.messages, row.tools))
    return rendered
