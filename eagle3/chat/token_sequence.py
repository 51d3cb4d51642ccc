"""Token ids with a loss mask: what every kind of data becomes."""

from dataclasses import dataclass
from typing import Any

from eagle3.chat.jsonl import Record
from eagle3.errors import InputError


@dataclass(frozen=True)
class TokenSequence:
    """`loss_mask` is 1 where the target would have generated the token, else 0; both are [T].

    `held_out`: a preparation keeps it from training.
    """

    place: str
    input_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    held_out: bool = False


def parse_token_sequence(record: Record) -> TokenSequence:
    """Reads ready `input_ids` with an optional `loss_mask` (left out: every token counts).

    Raises InputError where either is not a list of integers, is empty, or lengths differ.
    """
    input_ids = _integers(record, "input_ids")
    if not input_ids:
        raise InputError(f"{record.place}: `input_ids` is empty; remove the line")
    if record.fields.get("loss_mask") is None:
        return TokenSequence(record.place, input_ids, (1,) * len(input_ids))
    loss_mask = _integers(record, "loss_mask")
    if len(loss_mask) != len(input_ids):
        raise InputError(
            f"{record.place}: {len(input_ids)} `input_ids` but {len(loss_mask)} in `loss_mask`"
        )
    if not set(loss_mask) <= {0, 1}:
        raise InputError(f"{record.place}: `loss_mask` may hold 0 and 1 only")
    if not any(loss_mask):
        raise InputError(f"{record.place}: `loss_mask` is all 0, so nothing to train on")
    return TokenSequence(record.place, input_ids, loss_mask)


def _integers(record: Record, key: str) -> tuple[int, ...]:
    value: Any = record.fields[key]
    if not isinstance(value, list):
        raise InputError(
            f"{record.place}: `{key}` must be a list of integers, not {type(value).__name__}"
        )
    for position, item in enumerate(value):
        # In Python True is an integer; in a list of token ids it is a mistake.
        if not isinstance(item, int) or isinstance(item, bool):
            raise InputError(f"{record.place}: `{key}[{position}]` is {item!r}, not an integer")
    return tuple(value)
