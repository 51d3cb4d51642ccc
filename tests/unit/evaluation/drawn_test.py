"""Prompts of a prepared dataset."""

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import AutoTokenizer

from eagle3.draft.provenance import PROVENANCE, StatesOrigin
from eagle3.errors import InputError
from eagle3.evaluation import served
from eagle3.evaluation.evaluate import evaluate
from eagle3.evaluation.prompts import PromptSet, read_prompts
from eagle3.evaluation.request import EvaluationRequest
from eagle3.evaluation.served import ServedBackend
from eagle3.evaluation.table import as_json
from eagle3.preparation.prepare import prepare
from eagle3.preparation.request import PreparationRequest
from eagle3.preparation.split import is_validation
from eagle3.progress import Progress
from eagle3.store.sample import ids_digest
from tests.unit.evaluation.fake_server import FakeServer
from tests.unit.evaluation.tiny import export, make_llama
from tests.unit.preparation import rows
from tests.unit.tiny_target import CHAT_TEMPLATE, make_target


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = make_target(tmp_path_factory.mktemp("drawn") / "model")
    stops = (model / "generation_config.json").read_text()
    make_llama(model, len(AutoTokenizer.from_pretrained(model)))
    # What makes a random target knows nothing of turns.
    (model / "generation_config.json").write_text(stops)
    return model


def make_dataset(model: Path, out: Path, share: float, data: list[Any] = rows.GOOD) -> Path:
    path = rows.write(out.with_suffix(".jsonl"), data)
    prepare(PreparationRequest(path, model, out, validation_share=share), Progress())
    return out


@pytest.fixture(scope="module")
def dataset(model: Path) -> Path:
    """40 conversations of one to three answers, none of them held out."""
    return make_dataset(model, model.parent / "dataset", 0.0)


def table_of(dataset: Path, part: str = "train") -> list[dict[str, Any]]:
    return pq.read_table(dataset / f"{part}-00000.parquet").to_pylist()


def read(
    dataset: Path, model: Path, limit: int = 100, *, seed: int = 0, longest: int = 200
) -> PromptSet:
    return read_prompts(dataset, model, limit, longest, seed=seed)


def ids_of(prompts: PromptSet) -> list[str]:
    return [prompt.place.partition(":")[2] for prompt in prompts.prompts]


def test_a_prompt_is_what_stands_before_the_first_answer(dataset: Path, model: Path) -> None:
    prompts = read(dataset, model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    assert {tokenizer.decode(prompt.tokens) for prompt in prompts.prompts} == {
        f"<|begin|>user\nWhat is {number} and 0?<|end|>\n<|begin|>assistant\n"
        for number in range(40)
    }
    assert sorted(ids_of(prompts)) == sorted(row["id"] for row in table_of(dataset))
    assert set(prompts.by_kind()) == {"all"}
    assert len(prompts.stop_ids) >= 1
    assert "40 train samples of dataset" in prompts.origin


def test_all_files_are_drawn_from(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_TOKENS_PER_ROW_GROUP", "_TOKENS_PER_FILE"):
        monkeypatch.setattr(f"eagle3.preparation.dataset.{limit}", 1)
    data = [{"input_ids": [5, n % 20, n // 20], "loss_mask": [0, 1, 1]} for n in range(300)]
    dataset = make_dataset(model, model.parent / "files", 0.0, data)
    assert len(list(dataset.glob("train-*.parquet"))) > 1
    assert len(read(dataset, model, 1000).prompts) == 300


def test_fewer_prompts_are_the_first_of_more(dataset: Path, model: Path) -> None:
    every = ids_of(read(dataset, model))
    assert ids_of(read(dataset, model, 5)) == every[:5]


def test_the_seed_and_the_ids_alone_choose(dataset: Path, model: Path) -> None:
    drawn = ids_of(read(dataset, model, 5))
    assert ids_of(read(dataset, model, 5, seed=1)) != drawn
    turned = make_dataset(model, dataset.with_name("turned"), 0.0, rows.GOOD[::-1])
    assert ids_of(read(turned, model, 5)) == drawn
    # Without the first of those drawn the others stay.
    left = [
        row
        for row, made in zip(rows.GOOD, table_of(dataset), strict=True)
        if made["id"] != drawn[0]
    ]
    fewer = make_dataset(model, dataset.with_name("fewer"), 0.0, left)
    assert ids_of(read(fewer, model, 4)) == drawn[1:]


def test_what_training_holds_out_comes_first(dataset: Path, model: Path) -> None:
    ids = [row["id"] for row in table_of(dataset)]
    held_out = {name for name in ids if is_validation(3, name, 0.2)}
    assert 0 < len(held_out) < len(ids)
    assert set(ids_of(read(dataset, model, len(held_out), seed=3))) == held_out


def test_held_out_conversations_are_preferred(model: Path) -> None:
    dataset = make_dataset(model, model.parent / "split", 0.3)
    prompts = read(dataset, model)
    held_out = {row["id"] for row in table_of(dataset, "validation")}
    assert 0 < len(held_out) < 40
    assert set(ids_of(prompts)) == held_out
    assert prompts.origin == f"of the {len(held_out)} validation samples of split"


def test_what_is_known_of_the_drafts_is_told(
    request_: EvaluationRequest, model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dataset = make_dataset(model, model.parent / "apart", 0.3)
    held_out = {row["id"] for row in table_of(dataset, "validation")}
    other = export(model, 100, model.parent / "other")
    request = replace(request_, data=dataset, limit=1, beside={"other": other})

    def said() -> str:
        evaluate(request, Progress())
        [line] = [line for line in capfd.readouterr().err.splitlines() if "1 prompts" in line]
        return line.partition("samples of apart")[2]

    assert said() == "; whether the draft and other learnt from them is not known"
    note_held_out(request.draft, held_out)
    assert said() == "; whether other learnt from them is not known"
    note_held_out(other, held_out)
    assert said() == ", from which the draft and other did not learn"
    note_held_out(other, {row["id"] for row in table_of(dataset)})
    assert said() == "; whether other learnt from them is not known"


def note_held_out(draft: Path, ids: set[str]) -> None:
    """Lets the provenance of the draft say that its store held these samples out."""
    path = draft / PROVENANCE
    states = StatesOrigin("manifest", "dataset", "config", "weights", "stack", ids_digest(ids))
    fields = json.loads(path.read_text()) | {"states": [asdict(states)]}
    path.write_text(json.dumps(fields))


def test_a_sample_that_begins_with_an_answer_is_no_prompt(model: Path) -> None:
    data = [
        {"input_ids": [5, 6, 7], "loss_mask": [1, 0, 1]},
        {"input_ids": [7, 6, 5], "loss_mask": [0, 0, 1]},
    ]
    dataset = make_dataset(model, model.parent / "ready", 0.0, data)
    assert [prompt.tokens for prompt in read(dataset, model).prompts] == [(7, 6)]
    alone = make_dataset(model, model.parent / "alone", 0.0, data[:1])
    with pytest.raises(InputError, match="no prompts in"):
        read(alone, model)


def test_kinds_are_told_apart_where_samples_have_them(dataset: Path, model: Path) -> None:
    kinds = dataset.with_name("kinds")
    kinds.mkdir()
    table = pq.read_table(dataset / "train-00000.parquet")
    named = ["code", "chat", *[None] * 38]
    pq.write_table(table.append_column("kind", pa.array(named)), kinds / "train-00000.parquet")
    description = json.loads((dataset / "dataset.json").read_text())
    content = (kinds / "train-00000.parquet").read_bytes()
    description["files"] = {"train-00000.parquet": hashlib.sha256(content).hexdigest()}
    (kinds / "dataset.json").write_text(json.dumps(description))
    found = {kind: len(prompts) for kind, prompts in read(kinds, model).by_kind().items()}
    assert found == {"all": 38, "code": 1, "chat": 1}


def test_another_targets_dataset_is_refused(dataset: Path, tmp_path: Path) -> None:
    other = make_target(tmp_path / "other", chat_template=CHAT_TEMPLATE + " ")
    with pytest.raises(InputError, match="prepared for model, whose tokenizer or template differs"):
        read(dataset, other)


def test_a_folder_that_is_no_dataset_is_refused(model: Path, tmp_path: Path) -> None:
    rows.write(tmp_path / "rows.jsonl", rows.GOOD)
    with pytest.raises(InputError, match="is not a prepared dataset"):
        read(tmp_path, model)


def test_a_damaged_dataset_is_refused(model: Path) -> None:
    dataset = make_dataset(model, model.parent / "damaged", 0.0)
    path = dataset / "train-00000.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(InputError, match="is damaged"):
        read(dataset, model)


def test_a_prompt_without_room_for_an_answer_is_refused(dataset: Path, model: Path) -> None:
    with pytest.raises(InputError, match=r"dataset:\w+: a prompt of .* lower --max-new-tokens"):
        read(dataset, model, longest=20)


@pytest.fixture(scope="module")
def request_(model: Path, dataset: Path) -> EvaluationRequest:
    draft = export(model, 100, model.parent / "draft")
    return EvaluationRequest(draft, dataset, limit=3, max_new_tokens=8, speculative_tokens=2)


def test_the_own_backend_answers_those_of_its_seed(
    request_: EvaluationRequest, capfd: pytest.CaptureFixture[str]
) -> None:
    figures = as_json(evaluate(replace(request_, seed=4), Progress()))
    assert figures["prompts"] == 3
    # They are asked as they were prepared, and not as this run was told to.
    assert figures["reasoning"] is None
    assert figures["lossless"]
    told = "3 prompts: of the 40 train samples of dataset, those that a training with --seed 4"
    assert told in capfd.readouterr().err


def test_the_serving_backend_answers_them(
    request_: EvaluationRequest, model: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "Server", FakeServer)
    prompts = read(dataset, model, 3)
    backend = ServedBackend(request_, model, prompts, Progress())
    [alone] = backend.run("alone", None, (0.0,), timed=True)
    assert [output[0] for output in alone.outputs] == [p.tokens[0] for p in prompts.prompts]
    assert backend.gap(prompts.prompts[2], alone.outputs[2], 0, other=alone.outputs[2][0]) == 0.0
