"""A run commits batch by batch what the target gives, sample by sample."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from eagle3.engine.engine import EngineOptions
from eagle3.errors import EngineError
from eagle3.extraction.plan import ExtractionPlan, plan_extraction
from eagle3.extraction.request import ExtractionRequest
from eagle3.extraction.run import run_extraction
from eagle3.store.reader import StoreReader
from eagle3.store.writer import StoreWriter
from tests.unit.fake_engine import FailingEngine, FakeEngine
from tests.unit.tiny_target import make_target

# Prefixes are shared on purpose, and lengths run from one token to more than a step.
SAMPLES = [[1], [1, 2], [1, 2, 3, 4, 5, 6, 7, 8, 9], [9, 8, 7], [1, 2, 3], [5] * 25]


class Setting:
    """A target, data and an output folder."""

    def __init__(self, folder: Path) -> None:
        data = folder / "data.jsonl"
        data.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in SAMPLES))
        self.request = ExtractionRequest(
            model=make_target(folder / "target"),
            data=data,
            out=folder / "out",
            layers=(5, 0, 2),
            layer_convention="after-layer",
            tensor_parallel=1,
            max_model_len=None,
            max_tokens_per_step=10,
            gpu_memory_utilization=0.8,
            limit=None,
            truncate=False,
            seed=0,
            verbose=False,
        )

    def engine(self, kind: type[FakeEngine] = FakeEngine) -> FakeEngine:
        return kind(EngineOptions(model=self.request.model, capture_points=(6, 1, 3)))

    def run(self, engine: FakeEngine, *, max_tokens: int = 10, out: str = "out") -> ExtractionPlan:
        request = dataclasses.replace(self.request, out=self.request.out.with_name(out))
        plan = plan_extraction(request)
        with StoreWriter(request.out, plan.manifest) as store:
            run_extraction(plan, engine, store, max_tokens, on_commit=lambda batch: None)
        return plan


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def test_every_sample_has_its_own_states(setting: Setting) -> None:
    engine = setting.engine()
    plan = setting.run(engine)
    store = StoreReader(setting.request.out)
    assert store.is_complete
    for sample in plan.planned.samples:
        read, hidden_states_TLH = store.read(sample.id)
        assert read == sample
        assert torch.equal(hidden_states_TLH, engine.extract([sample.input_ids])[0])


def test_the_batch_size_makes_no_difference(setting: Setting) -> None:
    contents = []
    for out, max_tokens in (("one", 1), ("some", 10), ("all", 1000)):
        setting.run(setting.engine(), max_tokens=max_tokens, out=out)
        files = setting.request.out.with_name(out).glob("samples/*")
        contents.append({path.name: path.read_bytes() for path in files})
    assert len(contents[0]) == len(SAMPLES)
    assert contents[0] == contents[1] == contents[2]


def test_an_error_leaves_earlier_batches_and_the_next_run_goes_on(setting: Setting) -> None:
    with pytest.raises(EngineError, match="stopped answering"):
        setting.run(setting.engine(FailingEngine))
    first = StoreReader(setting.request.out).ids
    assert len(first) == 1
    asked: list[Sequence[int]] = []

    class Recording(FakeEngine):
        def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
            asked.extend(token_ids)
            return super().extract(token_ids)

    setting.run(setting.engine(Recording))
    assert StoreReader(setting.request.out).is_complete
    assert len(asked) == len(SAMPLES) - 1


def test_unfit_states_name_their_line_and_spare_earlier_batches(setting: Setting) -> None:
    class Unfit(FakeEngine):
        def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
            states = super().extract(token_ids)
            for tokens, hidden_states_TLH in zip(token_ids, states, strict=True):
                if list(tokens) == [9, 8, 7]:
                    hidden_states_TLH[1, 2, 0] = float("nan")
            return states

    with pytest.raises(
        EngineError, match=r"^data.jsonl:4: .* NaN or Inf at token 1, capture point 3"
    ):
        setting.run(setting.engine(Unfit))
    store = StoreReader(setting.request.out)
    assert 0 < len(store.ids) < len(SAMPLES)
    assert len(list(setting.request.out.glob("samples/*"))) == len(store.ids)


def test_a_missing_result_is_refused(setting: Setting) -> None:
    class Forgetful(FakeEngine):
        def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
            return super().extract(token_ids)[1:]

    with pytest.raises(EngineError, match="states of 0 samples for a batch of 1"):
        setting.run(setting.engine(Forgetful))
    assert not StoreReader(setting.request.out).ids
