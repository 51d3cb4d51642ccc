"""Finds states that no healthy target gives.

A draft trained on zeros, NaN or another token's rows shows a falling loss and accepts nothing, and
the cause is found weeks later; so such states are never stored.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

# So many bf16 values are eight bytes, which can be compared as one number.
_BEGINNING = 4


@dataclass(frozen=True)
class Fault:
    """`rows` rows (one token at one capture point each) of a sample are unfit.

    The first of them is that of `token` at `capture_point`.
    """

    kind: str
    token: int
    capture_point: int
    rows: int

    def __str__(self) -> str:
        return (
            f"{self.kind} at token {self.token}, capture point {self.capture_point} "
            f"({self.rows} such rows)"
        )


def find_faults(
    token_ids: Sequence[Sequence[int]],
    states: Sequence[torch.Tensor],
    capture_points: tuple[int, ...],
) -> list[Fault | None]:
    """The first kind of fault in each sample of a batch, or None.

    `states` are hidden_states_TLH, bf16, one for each of `token_ids`. Kinds are "NaN or Inf",
    "all zero", "constant" (a row of one value) and "duplicated" (two rows of the batch are equal
    at a capture point though their tokens differ, as where rows are counted wrongly).
    """
    duplicated = _duplicated_rows(token_ids, states)
    return [
        _first_fault(hidden_states_TLH, duplicated_TL, capture_points)
        for hidden_states_TLH, duplicated_TL in zip(states, duplicated, strict=True)
    ]


def _first_fault(
    hidden_states_TLH: torch.Tensor, duplicated_TL: torch.Tensor, capture_points: tuple[int, ...]
) -> Fault | None:
    constant_TL = _constant_rows(hidden_states_TLH)
    kinds = (
        ("NaN or Inf", _rows_without_number(hidden_states_TLH)),
        ("all zero", constant_TL & (hidden_states_TLH[:, :, 0] == 0)),
        ("constant", constant_TL),
        ("duplicated", duplicated_TL),
    )
    for kind, unfit_TL in kinds:
        if unfit_TL.any():
            token, layer = unfit_TL.nonzero()[0].tolist()
            return Fault(kind, token, capture_points[layer], int(unfit_TL.sum()))
    return None


def _rows_without_number(hidden_states_TLH: torch.Tensor) -> torch.Tensor:
    """bool [T, L]: NaN or Inf is somewhere in the row."""
    # The sum has none unless a value has, and takes a twentieth of the time of isfinite().
    return _confirmed(
        ~hidden_states_TLH.sum(dim=2).isfinite(),
        hidden_states_TLH,
        lambda rows_NH: ~rows_NH.isfinite().all(dim=1),
    )


def _constant_rows(hidden_states_TLH: torch.Tensor) -> torch.Tensor:
    """bool [T, L]: all values of the row are equal."""
    beginnings = hidden_states_TLH[:, :, :_BEGINNING]
    return _confirmed(
        (beginnings == beginnings[:, :, :1]).all(dim=2),
        hidden_states_TLH,
        lambda rows_NH: (rows_NH == rows_NH[:, :1]).all(dim=1),
    )


def _confirmed(
    suspect_TL: torch.Tensor,
    hidden_states_TLH: torch.Tensor,
    check: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """The suspects that pass the check, which is too slow for all rows."""
    confirmed_TL = torch.zeros_like(suspect_TL)
    if suspect_TL.any():
        confirmed_TL[suspect_TL] = check(hidden_states_TLH[suspect_TL])
    return confirmed_TL


def _duplicated_rows(
    token_ids: Sequence[Sequence[int]], states: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """For each sample, a bool [T, L]: the row equals one of another token in the batch."""
    lengths = [len(tokens) for tokens in token_ids]
    starts = list(accumulate(lengths, initial=0))
    tokens_T = torch.tensor([token for tokens in token_ids for token in tokens])
    # Equal rows begin with equal values: four of them, taken as one number, sort out the rest.
    beginnings_TL = torch.cat([_beginnings(hidden_states_TLH) for hidden_states_TLH in states])
    duplicated_TL = torch.zeros_like(beginnings_TL, dtype=torch.bool)
    for layer in range(beginnings_TL.shape[1]):
        for rows in _suspects(beginnings_TL[:, layer], tokens_T):
            # By content, not in pairs: all rows of a broken target are suspects.
            alike: defaultdict[bytes, list[int]] = defaultdict(list)
            for row in rows:
                sample = bisect_right(starts, row) - 1
                alike[_bytes_of(states[sample][row - starts[sample], layer])].append(row)
            for equal in alike.values():
                duplicated_TL[equal, layer] = bool((tokens_T[equal] != tokens_T[equal[0]]).any())
    return list(duplicated_TL.split(lengths))


def _beginnings(hidden_states_TLH: torch.Tensor) -> torch.Tensor:
    return hidden_states_TLH[:, :, :_BEGINNING].contiguous().view(torch.int64).squeeze(2)


def _suspects(beginnings_T: torch.Tensor, tokens_T: torch.Tensor) -> list[list[int]]:
    """Groups of rows that begin alike and are not all of one token."""
    _, group_T = beginnings_T.unique(return_inverse=True)
    groups = int(group_T.max()) + 1
    lowest = tokens_T.new_zeros(groups).scatter_reduce(
        0, group_T, tokens_T, "amin", include_self=False
    )
    highest = tokens_T.new_zeros(groups).scatter_reduce(
        0, group_T, tokens_T, "amax", include_self=False
    )
    mixed = (lowest != highest).nonzero().flatten().tolist()
    if not mixed:
        return []
    # All rows, group by group: a search for each group would read all rows each time.
    order_T = group_T.argsort()
    ends = [0, *group_T.bincount().cumsum(0).tolist()]
    return [order_T[ends[group] : ends[group + 1]].tolist() for group in mixed]


def _bytes_of(row_H: torch.Tensor) -> bytes:
    return row_H.contiguous().view(torch.uint8).numpy().tobytes()
