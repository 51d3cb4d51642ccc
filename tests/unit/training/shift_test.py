"""Exactly which rows count, at the edges of documents and masks."""

import torch

from eagle3.training.batch import PackedBatch
from eagle3.training.shift import ahead, counted, counted_rows, fed_row


def batch(document: list[int], mask: list[int]) -> PackedBatch:
    rows = len(document)
    return PackedBatch(
        torch.arange(rows),
        torch.zeros(rows, 4, 2, dtype=torch.bfloat16),
        torch.tensor(mask, dtype=torch.bool),
        torch.tensor(document, dtype=torch.int32),
        torch.zeros(rows, dtype=torch.int64),
    )


def rows_that_count(document: list[int], mask: list[int], steps: int = 2) -> list[list[int]]:
    counted_ST = counted(batch(document, mask), steps)
    return [row.nonzero().squeeze(1).tolist() for row in counted_ST]


def test_documents_of_one_to_four_tokens() -> None:
    document = [0, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    assert rows_that_count(document, [1] * 10) == [[3, 6, 7], [6]]


def test_a_row_counts_where_the_token_it_predicts_is_supervised() -> None:
    assert rows_that_count([0] * 6, [0, 0, 0, 1, 0, 1]) == [[1, 3], [0, 2]]


def test_the_first_two_tokens_are_predicted_by_no_row() -> None:
    assert rows_that_count([0] * 4, [1, 1, 0, 0]) == [[], []]


def test_padding_never_counts() -> None:
    assert rows_that_count([0, 0, 0, -1, -1, -1, -1], [1] * 7) == [[0], []]


def test_the_last_row_does_not_come_round_to_the_first() -> None:
    assert rows_that_count([0] * 3, [1] * 3) == [[0], []]
    assert rows_that_count([0] * 3, [1] * 3, steps=5)[2:] == [[], [], []]


def test_rows_are_counted_step_by_step() -> None:
    assert counted_rows(batch([0] * 5, [1] * 5), 4).tolist() == [3, 2, 1, 0]


def test_the_token_fed_and_the_teacher_are_one_row_ahead_of_the_last_step() -> None:
    ids_T = torch.tensor([10, 11, 12, 13])
    assert ahead(ids_T, fed_row(0)).tolist()[:3] == [11, 12, 13]
    assert ahead(ids_T, fed_row(1)).tolist()[:2] == [12, 13]
