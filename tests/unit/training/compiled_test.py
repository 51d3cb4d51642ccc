"""What is compiled for a GPU is compiled once, whatever is packed into a batch.

torch's own tracer, without its code generator: that there is one graph does not need a GPU.
"""

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch._dynamo.utils import counters

from eagle3.training import loss, unroll
from eagle3.training.attention import flex_document_attention
from eagle3.training.compiled import compiled_for
from tests.unit.training.tiny_draft import draft, rows, unrolled

# 128 rows each: more documents, fewer, some very short, and padding.
PACKINGS = [([128], 0), ([60, 68], 0), ([1, 2, 3, 90], 32), ([32] * 4, 0)]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The functions that a GPU would be given compiled, traced."""
    made: dict[Callable[..., object], Callable[..., object]] = {}

    def compiled_for(
        _device: torch.device, function: Callable[..., object]
    ) -> Callable[..., object]:
        if function not in made:
            made[function] = torch.compile(function, backend="eager", fullgraph=True, dynamic=False)
        return made[function]

    for module in (unroll, loss):
        monkeypatch.setattr(module, "compiled_for", compiled_for)
    monkeypatch.setattr(unroll, "dense_attention", flex_document_attention)
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("feed", ["true", "argmax"])
def test_one_compilation_serves_all_packings(feed: unroll.Feed) -> None:
    model = draft()
    with torch.no_grad():
        unrolled(model, rows([128], padding=0), feed=feed)
        graphs = counters["stats"]["unique_graphs"]
        with torch.compiler.set_stance("fail_on_recompile"):
            for lengths, padding in PACKINGS:
                unrolled(model, rows(lengths, padding), feed=feed)
    assert counters["stats"]["unique_graphs"] == graphs > 0


@pytest.mark.usefixtures("traced")
def test_another_number_of_rows_is_another_compilation() -> None:
    model = draft()
    with torch.no_grad():
        unrolled(model, rows([128], padding=0))
        with (
            torch.compiler.set_stance("fail_on_recompile"),
            pytest.raises(RuntimeError, match="recompile"),
        ):
            unrolled(model, rows([64], padding=0))


def test_only_the_compiler_is_not_heard() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        compiled_for(torch.device("cuda"), lambda: None)
        for module in ("torch._inductor.lowering", "torch.nn"):
            warnings.warn_explicit(module, UserWarning, "file.py", 1, module=module)
    assert [str(warning.message) for warning in heard] == ["torch.nn"]
