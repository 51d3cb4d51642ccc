"""Token, teacher row and mask of each row at each unrolled step: the only place that shifts.

Row t of a document holds the target's states after it read token t. As vLLM 0.16 serves a draft
(`v1/spec_decode/eagle.py`), step i of row t

* is fed token t+1+i,
* predicts token t+2+i, as the target does at its row t+1+i: the teacher's row,
* counts where token t+2+i is supervised.

A row counts only where all three lie in its own document. speculators 0.3.0 shifts tokens and
teacher alike, but counts where token t+1+i is supervised, the token that is fed.
"""

import torch

from eagle3.training.batch import PackedBatch


def fed_ids(batch: PackedBatch, step: int) -> torch.Tensor:
    """The token fed to each row at `step` [T]; 0 where the document has ended."""
    return _later(batch.input_ids_T, batch.document_T, fed_offset(step))


def counts(batch: PackedBatch, step: int) -> torch.Tensor:
    """The rows whose prediction at `step` is trained and measured [T], bool."""
    return _later(batch.loss_mask_T, batch.document_T, fed_offset(step) + 1)


def fed_offset(step: int) -> int:
    """How far behind row t its fed token is, and its teacher's row with it."""
    return step + 1


def counted_rows(batch: PackedBatch, steps: int) -> torch.Tensor:
    """How many rows count at each step [S], int64."""
    return torch.stack([counts(batch, step).sum() for step in range(steps)])


def _later(values_T: torch.Tensor, document_T: torch.Tensor, by: int) -> torch.Tensor:
    """`values_T[t + by]` where that is a row of the same document, else 0."""
    later_T = torch.zeros_like(values_T)
    if by >= len(values_T):
        return later_T
    kept = len(values_T) - by
    same = (document_T[by:] == document_T[:kept]) & (document_T[:kept] >= 0)
    later_T[:kept] = torch.where(same, values_T[by:], 0)
    return later_T
