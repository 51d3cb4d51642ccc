"""A run commits shard by shard what the target has written, sample by sample."""

import dataclasses
import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from eagle3.engine.options import EngineOptions
from eagle3.engine.prefill import Prompt
from eagle3.errors import EngineError
from eagle3.extraction.plan import ExtractionPlan, plan_extraction
from eagle3.extraction.run import Detectors, Rules, run_extraction
from eagle3.extraction.states import Fault, find_faults
from eagle3.store.part import Part
from eagle3.store.reader import StoreReader
from eagle3.store.writer import StoreWriter
from tests.unit.extraction.requests import make_request
from tests.unit.fake_engine import FailingEngine, FakeEngine
from tests.unit.store.stored import contents
from tests.unit.tiny_target import make_target

# Prefixes are shared on purpose, and lengths run from one token to more than a step.
SAMPLES = [[1], [1, 2], [1, 2, 3, 4, 5, 6, 7, 8, 9], [9, 8, 7], [1, 2, 3], [5] * 25]


class Setting:
    """A target, data and an output folder."""

    def __init__(self, folder: Path) -> None:
        data = folder / "data.jsonl"
        data.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in SAMPLES))
        self.request = make_request(
            make_target(folder / "target"),
            data,
            folder / "out",
            layers=(5, 0, 2),
            max_tokens_per_step=10,
            shard_bytes=200,
        )

    def engine(self, kind: type[FakeEngine] = FakeEngine) -> FakeEngine:
        return kind(
            EngineOptions(
                model=self.request.model, capture_points=(6, 1, 3), max_tokens_per_step=10
            )
        )

    def run(
        self,
        engine: FakeEngine,
        *,
        out: str = "out",
        detectors: Detectors = find_faults,
        **options: Any,
    ) -> ExtractionPlan:
        out_folder = self.request.out.with_name(out)
        request = dataclasses.replace(self.request, out=out_folder, **options)
        plan = plan_extraction(request)
        with StoreWriter(plan.store, plan.manifest) as store:
            rules = Rules(plan.planned.places, request.shard_bytes, request.on_bad)
            run_extraction(
                plan.missing,
                plan.manifest,
                rules,
                engine,
                store,
                on_done=lambda samples: None,
                detectors=detectors,
            )
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


def test_order_batch_shard_and_parts_make_no_difference(setting: Setting) -> None:
    runs: list[dict[str, Any]] = [
        {"max_tokens_per_step": 1},
        {"max_tokens_per_step": 10},
        {"max_tokens_per_step": 1000, "shard_bytes": 2**30},
        {"part": Part(0, 2)},
    ]
    stores = []
    for number, options in enumerate(runs):
        setting.run(setting.engine(), out=str(number), **options)
    lines = setting.request.data.read_text().splitlines(keepends=True)
    setting.request.data.write_text("".join(reversed(lines)))
    setting.run(setting.engine(), out="3", part=Part(1, 2))
    setting.run(setting.engine(), out="4")
    stores = [contents(setting.request.out.with_name(str(number))) for number in range(5)]
    assert len(stores[0]) == len(SAMPLES)
    assert all(store == stores[0] for store in stores)


def test_shards_are_of_the_size_asked_for(setting: Setting) -> None:
    setting.run(setting.engine(), max_tokens_per_step=3)
    shards = defaultdict(list)
    for entry in StoreReader(setting.request.out).entries.values():
        shards[entry.shard].append(entry.length)
    # 200 bytes are six tokens: 3 points x 4 values x 2 bytes each, and 9 for token and mask.
    assert len(shards) == 5
    assert all(sum(lengths) <= 6 or len(lengths) == 1 for lengths in shards.values())


def test_an_error_leaves_earlier_batches_and_the_next_run_goes_on(setting: Setting) -> None:
    with pytest.raises(EngineError, match="stopped answering"):
        setting.run(setting.engine(FailingEngine))
    first = StoreReader(setting.request.out).ids
    assert 0 < len(first) < len(SAMPLES)
    asked: list[Sequence[int]] = []

    class Recording(FakeEngine):
        def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
            asked.extend(token_ids)
            return super().extract(token_ids)

    setting.run(setting.engine(Recording))
    assert StoreReader(setting.request.out).is_complete
    assert len(asked) == len(SAMPLES) - len(first)


def test_unfit_states_name_their_line_and_spare_earlier_batches(setting: Setting) -> None:
    # Of two unfit samples, that one is told whose shard comes first.
    with pytest.raises(
        EngineError, match=r"^data.jsonl:4: .* NaN or Inf at token 1, capture point 3"
    ):
        setting.run(setting.engine(Unfit))
    assert 0 < len(StoreReader(setting.request.out).ids) < len(SAMPLES)


class Unfit(FakeEngine):
    """Gives one NaN in one sample, and zeros at one token of another."""

    def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        states = super().extract(token_ids)
        for tokens, hidden_states_TLH in zip(token_ids, states, strict=True):
            if list(tokens) == [9, 8, 7]:
                hidden_states_TLH[1, 2, 0] = float("nan")
            if list(tokens) == [1]:
                hidden_states_TLH[0, 0] = 0
        return states


def test_unfit_states_can_be_set_aside(setting: Setting) -> None:
    plan = setting.run(setting.engine(Unfit), on_bad="quarantine")
    store = StoreReader(setting.request.out)
    assert store.is_complete
    assert len(store.ids) == len(SAMPLES) - 2
    assert {entry.detail for entry in store.quarantined.values()} == {
        "data.jsonl:1: all zero at token 0, capture point 6 (1 such rows)",
        "data.jsonl:4: NaN or Inf at token 1, capture point 3 (1 such rows)",
    }
    assert store.manifest.counts is not None
    assert store.manifest.counts.quarantined == {"NaN or Inf": 1, "all zero": 1}
    assert not plan_extraction(setting.request).missing
    assert plan.missing


def test_a_target_that_gives_nothing_fit_is_not_run_to_the_end(setting: Setting) -> None:
    setting.request.data.write_text(
        "".join(f'{{"input_ids": [{token}, 1]}}\n' for token in range(200))
    )

    class Broken(FakeEngine):
        def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
            return [torch.zeros_like(states) for states in super().extract(token_ids)]

    with pytest.raises(EngineError, match=r"states of \d+ of \d+ samples are unfit, the last"):
        setting.run(setting.engine(Broken), on_bad="quarantine")
    assert 0 < len(StoreReader(setting.request.out).quarantined) < 50


def test_a_missing_result_is_refused(setting: Setting) -> None:
    class Forgetful(FakeEngine):
        def run(self, prompts: Iterable[Prompt]) -> Iterator[list[Prompt]]:
            for group in super().run(prompts):
                yield [prompt for prompt in group if prompt.name != "data.jsonl:4"]

    with pytest.raises(EngineError, match=r"^data.jsonl:4: the target gave no states"):
        setting.run(setting.engine(Forgetful))
    assert len(StoreReader(setting.request.out).ids) == len(SAMPLES) - 1


def test_checkers_take_a_core_each_and_leave_the_threads_of_others_alone(
    setting: Setting,
) -> None:
    seen: set[tuple[str, int]] = set()

    def record(*arguments: Any) -> list[Fault | None]:
        seen.add((threading.current_thread().name.partition("_")[0], torch.get_num_threads()))
        return find_faults(*arguments)

    ours = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        setting.run(setting.engine(), detectors=record)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(ours)
    assert seen == {("check", 1)}


def test_checks_and_commits_run_beside_the_target_and_end_before_it_is_told_so(
    setting: Setting,
) -> None:
    setting.request.data.write_text(
        "".join(f'{{"input_ids": [{token}, 1, 2]}}\n' for token in range(3, 120))
    )
    setting.run(setting.engine(), shard_bytes=100)
    store = StoreReader(setting.request.out)
    assert store.is_complete
    assert len(store.shards) == 117
