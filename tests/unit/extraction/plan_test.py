"""All that can be known before the target is started is found out, and nothing is written."""

import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eagle3.engine.options import EngineOptions
from eagle3.errors import InputError, StoreError
from eagle3.extraction.plan import plan_extraction
from eagle3.extraction.request import ExtractionRequest
from eagle3.extraction.run import Rules, run_extraction
from eagle3.store.part import Part
from eagle3.store.writer import StoreWriter
from tests.unit.extraction.requests import make_request
from tests.unit.fake_engine import FakeEngine
from tests.unit.tiny_target import HIDDEN_SIZE, NUM_LAYERS, make_target


@pytest.fixture
def request_(tmp_path: Path) -> ExtractionRequest:
    data = tmp_path / "data.jsonl"
    data.write_text('{"input_ids": [1, 2, 3]}\n{"input_ids": [4, 5]}\n')
    return make_request(
        make_target(tmp_path / "target"),
        data,
        tmp_path / "new" / "out",
        command="extract --layers 3,0",
    )


def change_config(request: ExtractionRequest, **changes: Any) -> None:
    path = request.model / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_planning_writes_nothing(request_: ExtractionRequest) -> None:
    plan = plan_extraction(request_)
    assert len(plan.missing) == 2
    assert not request_.out.parent.exists()


def test_the_default_ends_with_the_last_layer(request_: ExtractionRequest) -> None:
    assert plan_extraction(request_).capture_points[-1] == NUM_LAYERS


@pytest.mark.parametrize(("convention", "points"), [("after-layer", (4, 1)), ("vllm", (3, 0))])
def test_layers_keep_their_order(
    request_: ExtractionRequest, convention: Any, points: tuple[int, ...]
) -> None:
    request = dataclasses.replace(request_, layers=(3, 0), layer_convention=convention)
    plan = plan_extraction(request)
    assert plan.capture_points == plan.manifest.capture_points == points


def test_bytes_needed_are_those_of_the_states_and_little_more(request_: ExtractionRequest) -> None:
    request = dataclasses.replace(request_, layers=(3, 0))
    tensors = 5 * (2 * HIDDEN_SIZE * 2 + 9)
    assert tensors < plan_extraction(request).disk.needed < tensors + 20_000


def test_bytes_needed_are_enough_for_what_is_written(request_: ExtractionRequest) -> None:
    samples = [[number + 1] * number for number in range(1, 60)]
    request_.data.write_text("".join(json.dumps({"input_ids": ids}) + "\n" for ids in samples))
    for shard_bytes in (100, 2**30):
        out = request_.out.with_name(str(shard_bytes))
        request = dataclasses.replace(request_, shard_bytes=shard_bytes, out=out)
        plan = plan_extraction(request)
        engine = FakeEngine(EngineOptions(request.model, plan.capture_points))
        with StoreWriter(out, plan.manifest) as store:
            rules = Rules(plan.planned.places, request.shard_bytes, request.on_bad)
            run_extraction(
                plan.missing, plan.manifest, rules, engine, store, on_done=lambda samples: None
            )
        size = sum(path.stat().st_blocks * 512 for path in out.iterdir())
        assert size / 10 < plan.disk.needed
        assert size < plan.disk.needed


def test_a_disk_that_is_too_small_is_refused(
    request_: ExtractionRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = plan_extraction(request_).disk.needed
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=needed))
    plan_extraction(request_)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=needed - 1))
    with pytest.raises(StoreError, match=r"are needed in .* are free"):
        plan_extraction(request_)


@pytest.mark.parametrize(
    ("positions", "asked", "length"),
    [(None, None, 2048), (4096, None, 2048), (512, None, 512), (512, 100, 100), (None, 9999, 9999)],
)
def test_samples_may_be_as_long_as_asked_and_as_the_target_takes(
    request_: ExtractionRequest, positions: int | None, asked: int | None, length: int
) -> None:
    change_config(request_, max_position_embeddings=positions)
    request = dataclasses.replace(request_, max_model_len=asked)
    assert plan_extraction(request).max_model_len == length


def test_more_positions_than_the_target_has_are_refused(request_: ExtractionRequest) -> None:
    request = dataclasses.replace(request_, max_model_len=4097)
    with pytest.raises(InputError, match="4,097 is more than the 4,096 positions"):
        plan_extraction(request)


def test_weights_are_part_of_the_identity(request_: ExtractionRequest) -> None:
    before = plan_extraction(request_).manifest
    weights = request_.model / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    difference = before.difference(plan_extraction(request_).manifest)
    assert difference is not None
    assert difference.startswith("target.weights_sha256")


def test_the_configuration_is_part_of_the_identity(request_: ExtractionRequest) -> None:
    before = plan_extraction(request_).manifest
    change_config(request_, rms_norm_eps=0.5)
    difference = before.difference(plan_extraction(request_).manifest)
    assert difference is not None
    assert difference.startswith("target.config_sha256")


def test_the_tokenizer_is_part_of_the_identity(request_: ExtractionRequest) -> None:
    before = plan_extraction(request_).manifest
    tokenizer = request_.model / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + " ")
    difference = before.difference(plan_extraction(request_).manifest)
    assert difference is not None
    assert difference.startswith("tokenizer_sha256")


def test_a_tokenizer_s_own_code_is_part_of_the_identity(request_: ExtractionRequest) -> None:
    code = request_.model / "own_tokenizer.py"
    code.write_text("SPACE = ' '")
    settings = request_.model / "tokenizer_config.json"
    named = json.loads(settings.read_text()) | {"auto_map": {"AutoTokenizer": ["own.A", None]}}
    settings.write_text(json.dumps(named))
    before = plan_extraction(request_).manifest
    code.write_text("SPACE = '_'")
    difference = before.difference(plan_extraction(request_).manifest)
    assert difference is not None
    assert difference.startswith("tokenizer_sha256")
    # Ready token ids do not need it: where it lies elsewhere, nobody asks for it.
    settings.write_text(json.dumps(named | {"auto_map": {"AutoTokenizer": ["other--own.A", None]}}))
    plan_extraction(request_)


def test_where_the_target_lies_is_no_part_of_its_identity(request_: ExtractionRequest) -> None:
    before = plan_extraction(request_).manifest
    moved = request_.model.rename(request_.model.with_name("moved"))
    after = plan_extraction(dataclasses.replace(request_, model=moved)).manifest
    assert after.target.path == str(moved)
    assert before.difference(after) is None


def test_a_part_has_its_share_of_the_samples_and_its_own_folder(
    request_: ExtractionRequest,
) -> None:
    request_.data.write_text("".join(f'{{"input_ids": [{token}]}}\n' for token in range(40)))
    shares = []
    for number in range(3):
        plan = plan_extraction(dataclasses.replace(request_, part=Part(number, 3)))
        assert plan.store == request_.out / f"part-0000{number}-of-00003"
        assert plan.manifest.dataset.samples == 40
        shares.append({sample.id for sample in plan.missing})
    assert sum(map(len, shares)) == len(set().union(*shares)) == 40


def test_a_model_without_weights_is_refused(request_: ExtractionRequest) -> None:
    (request_.model / "model.safetensors").unlink()
    with pytest.raises(InputError, match="no weights in"):
        plan_extraction(request_)


def test_the_stack_is_named(request_: ExtractionRequest) -> None:
    stack = plan_extraction(request_).manifest.stack
    assert stack.name in ("cpu", "cuda128")
    assert stack.versions["speculators"] == "0.3.0"
