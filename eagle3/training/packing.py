"""Which rows of which samples share a batch."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

# More open batches leave less padding: 32 leave about 1 % where documents are a tenth of a batch.
OPEN_BATCHES = 32


@dataclass(frozen=True, slots=True)
class Document:
    """The rows `start` to `start + length` of sample number `sample`."""

    sample: int
    start: int
    length: int


# The documents of one batch.
Packed = tuple[Document, ...]


@dataclass(order=True, slots=True)
class _OpenBatch:
    room: int
    number: int
    documents: list[Document] = field(compare=False)


def documents_of(sample: int, length: int, capacity: int) -> Iterator[Document]:
    """One document, or several where the sample is longer than a batch of `capacity` rows."""
    for start in range(0, length, capacity):
        yield Document(sample, start, min(capacity, length - start))


def pack(
    order: Iterable[int], lengths: Sequence[int], capacity: int, most_open: int = OPEN_BATCHES
) -> Iterator[Packed]:
    """Packs samples, in `order`, into batches of at most `capacity` rows.

    Best fit: a document goes into the open batch whose room it leaves smallest; where it fits into
    none and `most_open` are open, the fullest one is handed out. Whatever comes out depends on the
    arguments alone.
    """
    opened: list[_OpenBatch] = []
    number = 0
    for sample in order:
        for document in documents_of(sample, lengths[sample], capacity):
            place = bisect_left(opened, document.length, key=lambda batch: batch.room)
            if place < len(opened):
                batch = opened.pop(place)
            else:
                if len(opened) == most_open:
                    yield tuple(opened.pop(0).documents)
                batch = _OpenBatch(capacity, number, [])
                number += 1
            batch.documents.append(document)
            batch.room -= document.length
            if batch.room:
                insort(opened, batch)
            else:
                yield tuple(batch.documents)
    for batch in sorted(opened, key=lambda batch: batch.number):
        yield tuple(batch.documents)
