"""The unrolled loss against its literal form: values, gradients, tallies, and what it ignores."""

from dataclasses import replace

import pytest
import torch

from eagle3.draft.model import DraftModel
from eagle3.training import loss
from eagle3.training.batch import PackedBatch
from eagle3.training.shift import counted_rows
from eagle3.training.unroll import Feed
from tests.unit.training.plain import plain_loss
from tests.unit.training.tiny_draft import D, draft, rows, target, unrolled


def gradients(model: DraftModel, total: torch.Tensor) -> dict[str, torch.Tensor]:
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    return dict(zip(trained, torch.autograd.grad(total, list(trained.values())), strict=True))


@pytest.mark.parametrize("feed", ["true", "argmax"])
@pytest.mark.parametrize("norm_before_residual", [False, True])
def test_equals_its_literal_form(feed: Feed, norm_before_residual: bool) -> None:
    model, batch = draft(norm_before_residual=norm_before_residual), rows()
    plain = plain_loss(model, target()[0], batch, 4, feed)
    mine = unrolled(model, batch, feed=feed)
    assert mine.count_S.tolist() == plain.count_S.tolist()
    assert mine.top1_correct_S.tolist() == plain.top1_correct_S.tolist()
    assert mine.accepted_S.tolist() == plain.accepted_S.tolist()
    assert plain.accepted_S.sum() > 0
    torch.testing.assert_close(mine.loss_S, (plain.sum_S / plain.count_S).detach())
    total = (plain.sum_S / plain.count_S * 0.8 ** torch.arange(4)).sum()
    torch.testing.assert_close(mine.total, total)
    expected = gradients(model, total)
    for name, gradient in gradients(model, mine.total).items():
        torch.testing.assert_close(gradient, expected[name], msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize(("rows_at_a_time", "portions"), [(5, 13), (64, 2)])
def test_gradients_do_not_depend_on_the_size_of_chunks(
    monkeypatch: pytest.MonkeyPatch, rows_at_a_time: int, portions: int
) -> None:
    model, batch = draft(), rows()
    whole = gradients(model, unrolled(model, batch).total)
    monkeypatch.setattr(loss, "LOGITS_AT_A_TIME", rows_at_a_time * D)
    assert len(loss.chunks(len(batch.input_ids_T), D)) == portions
    for name, gradient in gradients(model, unrolled(model, batch).total).items():
        torch.testing.assert_close(gradient, whole[name])


@pytest.mark.parametrize(
    ("rows", "logits_per_row", "expected"),
    [
        (8192, 32000, 4096),
        (8192, 163840, 512),
        (10000, 32000, 2500),
        # A prime: portions of one row would take a product of matrices each.
        (8191, 32000, 4096),
        (4, 2**30, 1),
    ],
)
def test_portions_are_large_whatever_the_rows(
    rows: int, logits_per_row: int, expected: int
) -> None:
    portions = loss.chunks(rows, logits_per_row)
    assert [0, *(end for _, end in portions)] == [*(begin for begin, _ in portions), rows]
    assert portions[0] == (0, expected)
    assert expected == 1 or expected * logits_per_row <= loss.LOGITS_AT_A_TIME


def test_a_frozen_head_stays_as_the_target_stores_it() -> None:
    model = draft(train_head=False)
    assert model.lm_head.weight.dtype == torch.bfloat16
    names = gradients(model, unrolled(model, rows()).total)
    assert "lm_head.weight" not in names
    assert "embed_tokens.weight" not in names


def test_documents_do_not_see_each_other() -> None:
    model = draft()
    together = unrolled(model, rows([5, 8], padding=0))
    batch = rows([5, 8], padding=0)
    halves = [
        PackedBatch(
            batch.input_ids_T[part],
            batch.hidden_states_TLH[part],
            batch.loss_mask_T[part],
            batch.document_T[part],
            batch.position_T[part],
        )
        for part in (slice(0, 5), slice(5, 13))
    ]
    apart = [unrolled(model, half, together.count_S) for half in halves]
    torch.testing.assert_close(apart[0].total + apart[1].total, together.total)
    counts = [counted_rows(half, 4) for half in halves]
    assert torch.equal(counts[0] + counts[1], together.count_S)


def test_what_is_behind_a_row_does_not_change_it() -> None:
    """Causality: only the rows that are fed or taught by a changed row may change."""
    model, batch = draft(), rows([12], padding=0)
    mask_T = torch.zeros(12, dtype=torch.bool)
    mask_T[:8] = True
    batch = replace(batch, loss_mask_T=mask_T)
    states_TLH = batch.hidden_states_TLH.clone()
    states_TLH[7:] += 1.0
    other = replace(batch, hidden_states_TLH=states_TLH)
    torch.testing.assert_close(unrolled(model, other).loss_S, unrolled(model, batch).loss_S)
    states_TLH[6, 3] += 1.0
    changed = unrolled(model, replace(batch, hidden_states_TLH=states_TLH))
    assert not torch.allclose(changed.loss_S, unrolled(model, batch).loss_S)


def test_nothing_supervised_is_no_loss_and_no_gradient() -> None:
    model, batch = draft(), rows()
    batch = replace(batch, loss_mask_T=torch.zeros_like(batch.loss_mask_T))
    mine = unrolled(model, batch)
    assert mine.total.item() == 0.0
    assert mine.count_S.tolist() == [0, 0, 0, 0]
    assert all(not gradient.any() for gradient in gradients(model, mine.total).values())
