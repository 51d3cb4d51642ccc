"""Token, teacher row and mask of each row at each unrolled step: the only place that shifts.

Row t of a document holds the target's states after it read token t. As vLLM 0.16 serves a draft
(`v1/spec_decode/eagle.py`), step i of row t

* is fed token t+1+i,
* predicts token t+2+i, as the target does at its row t+1+i: the teacher's row,
* counts where token t+2+i is supervised and in the same document.

speculators 0.3.0 and 0.9.0 shift tokens and teacher alike, but count where token t+1+i is
supervised, which is the one that is fed.
"""

import torch

from eagle3.training.batch import PackedBatch


def fed_row(step: int) -> int:
    """How many rows behind row t the token that it is fed stands, and its teacher's row."""
    return step + 1


def ahead(rows: torch.Tensor, by: int) -> torch.Tensor:
    """Row t becomes row t + `by`.

    A row whose document ends before that gets another's: such a row never counts, and no other
    row of its document attends to it.
    """
    return rows.roll(-by, 0)


def counted(batch: PackedBatch, steps: int) -> torch.Tensor:
    """The rows whose prediction is trained and measured at each step [S, T], bool."""
    return torch.stack([_counted(batch, fed_row(step) + 1) for step in range(steps)])


def counted_rows(batch: PackedBatch, steps: int) -> torch.Tensor:
    """How many rows count at each step [S], int64."""
    return counted(batch, steps).sum(-1)


def _counted(batch: PackedBatch, predicted: int) -> torch.Tensor:
    """Rows t where token t + `predicted` is supervised and of the same document."""
    rows_T = torch.arange(len(batch.document_T), device=batch.document_T.device)
    same_T = ahead(batch.document_T, predicted) == batch.document_T
    # A roll comes round to the first document, which may be the last one, too.
    inside_T = rows_T < len(rows_T) - predicted
    return ahead(batch.loss_mask_T, predicted) & same_T & inside_T & (batch.document_T >= 0)
