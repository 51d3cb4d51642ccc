"""Keeps account of rows: a prompt is whole when each of its rows was written once."""

from collections.abc import Iterable

from eagle3.engine.rows import Rows


class Ledger:
    """Prompts by the name of their request, and which of their rows were written."""

    def __init__(self) -> None:
        self._written: dict[str, bytearray] = {}

    @property
    def open(self) -> tuple[str, ...]:
        """The prompts that are not whole, in the order in which they came."""
        return tuple(self._written)

    def expect(self, request: str, rows: int) -> None:
        """A prompt of so many rows is to come."""
        self._written[request] = bytearray(rows)

    def enter(self, written: Iterable[Rows]) -> list[str]:
        """Enters rows that were written; the prompts that are whole by them, which are closed.

        Raises RuntimeError for a row that is written twice, or that no prompt has.
        """
        whole = []
        for rows in written:
            marks = self._written.get(rows.request)
            span = slice(rows.first, rows.first + rows.count)
            if marks is None or any(marks[span]) or len(marks[span]) != rows.count:
                raise RuntimeError(
                    f"rows {span.start:,} to {span.stop:,} of request {rows.request} were written "
                    "twice, or are not its own"
                )
            marks[span] = b"\1" * rows.count
            if all(marks):
                del self._written[rows.request]
                whole.append(rows.request)
        return whole
