"""Which rows of which prompt a step runs, and where they go: the plain data that crosses RPCs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows `first` to `first + count` of the prompt that the scheduler knows as `request`.

    A row is one token's states at all capture points, [L, H]. They go to the file `path`, from
    byte `position` on.
    """

    request: str
    first: int
    count: int
    path: str
    position: int

    def cut(self, begin: int, end: int, row_bytes: int) -> "Rows":
        """The rows from `begin` to `end` of these, counted from the first of them."""
        return replace(
            self,
            first=self.first + begin,
            count=end - begin,
            position=self.position + begin * row_bytes,
        )


@dataclass(frozen=True)
class Share:
    """Number `number` of `writers` processes that hold the same states and write a share each.

    Shares are contiguous, disjoint, and together all rows of a step.
    """

    number: int
    writers: int

    def of(self, rows: int) -> range:
        return range(self.number * rows // self.writers, (self.number + 1) * rows // self.writers)


@dataclass(frozen=True)
class Report:
    """What one process has written since its last report, and whether `more` is on its way.

    `failure` says why it can write no more, or is None; it is for the user. The fault is the
    target's where `of_target`, and the folder's otherwise.
    """

    written: tuple[Rows, ...] = ()
    more: bool = False
    failure: str | None = None
    of_target: bool = False


def in_order(rows: Iterable[Rows], requests: Sequence[str]) -> list[Rows]:
    """The step's rows in the order of `requests`, in which the model runner lays them out.

    Raises RuntimeError unless the step has rows of exactly these requests.
    """
    by_request: Mapping[str, Rows] = {part.request: part for part in rows}
    if sorted(by_request) != sorted(requests):
        raise RuntimeError(
            f"the runner has rows of {len(requests)} requests, planned were {len(by_request)}"
        )
    return [by_request[request] for request in requests]


def section(rows: Iterable[Rows], wanted: range, row_bytes: int) -> Iterator[Rows]:
    """The parts of `rows`, laid out one after the other, that fall into `wanted`."""
    offset = 0
    for part in rows:
        begin, end = max(wanted.start - offset, 0), min(wanted.stop - offset, part.count)
        if begin < end:
            yield part.cut(begin, end, row_bytes)
        offset += part.count
