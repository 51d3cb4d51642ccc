"""Products in fp8: the scales are put on and taken off again, in the product and its gradients.

A CPU does not multiply rows with scales of their own, so a plain product stands in for the
instruction; tests/gpu runs the real one.
"""

import pytest
import torch

from eagle3.draft.config import DraftConfig
from eagle3.draft.fp8 import check_fp8, fp8_linear
from eagle3.draft.model import DraftModel
from eagle3.errors import InputError

ROWS, K, N = 32, 64, 48


def plain_product(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype,
    use_fast_accum: bool,
) -> torch.Tensor:
    """What `torch._scaled_mm` promises, where it takes its arguments at all."""
    assert a.dtype == b.dtype == torch.float8_e4m3fn
    assert (a.is_contiguous(), b.T.is_contiguous(), use_fast_accum) == (True, True, True)
    assert (scale_a.shape, scale_b.shape) == ((len(a), 1), (1, b.shape[1]))
    return ((a.float() * scale_a) @ (b.float() * scale_b)).to(out_dtype)


@pytest.fixture(autouse=True)
def instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "_scaled_mm", plain_product)


def distance(mine: torch.Tensor, exact: torch.Tensor) -> float:
    return ((mine - exact).norm() / exact.norm()).item()


def test_product_and_gradients_come_near() -> None:
    torch.manual_seed(0)
    # Rows and columns of very different size: one scale for all would lose the small ones.
    sizes = 10.0 ** torch.linspace(-4, 4, ROWS)[:, None]
    x = (torch.randn(ROWS, K) * sizes).to(torch.bfloat16).requires_grad_()
    weight = torch.randn(N, K).to(torch.bfloat16).requires_grad_()
    upstream = (torch.randn(ROWS, N) / sizes).to(torch.bfloat16)
    out = fp8_linear(x, weight)
    for row in range(ROWS):
        assert 0.001 < distance(out[row], x[row] @ weight.T) < 0.06
    out.backward(upstream)
    assert x.grad is not None
    assert weight.grad is not None
    for row in range(ROWS):
        assert 0.001 < distance(x.grad[row], upstream[row] @ weight) < 0.06
    assert distance(weight.grad, upstream.T @ x) < 1e-6


def test_rows_of_zeros_stay_zeros() -> None:
    out = fp8_linear(torch.zeros(2, K, dtype=torch.bfloat16), torch.ones(N, K).bfloat16())
    assert torch.equal(out, torch.zeros(2, N, dtype=torch.bfloat16))


def test_only_the_layer_multiplies_in_fp8() -> None:
    model = DraftModel(DraftConfig(30, 20, 16, 20, 4, 2, 8, 64, (1, 2, 3)))
    model.multiply_in_fp8()
    in_fp8 = {
        name for name, part in model.named_modules() if getattr(part, "product", 0) is fp8_linear
    }
    assert in_fp8 == {
        *(f"layers.0.self_attn.{name}_proj" for name in "qkvo"),
        *(f"layers.0.mlp.{name}_proj" for name in ("gate", "up", "down")),
    }


def test_it_needs_a_gpu_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    check_fp8(gpu)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    for device in (gpu, torch.device("cpu")):
        with pytest.raises(InputError, match="Hopper or newer"):
            check_fp8(device)
