"""The evaluation as a whole, on a target that talks nonsense."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from eagle3.engine.serving import ServingOptions
from eagle3.errors import EngineError, InputError
from eagle3.evaluation import evaluate as evaluation
from eagle3.evaluation import served
from eagle3.evaluation.evaluate import evaluate
from eagle3.evaluation.own import OwnBackend
from eagle3.evaluation.report import Divergence, EvaluationReport
from eagle3.evaluation.request import EvaluationRequest
from eagle3.evaluation.table import as_json, as_table
from eagle3.progress import Progress
from tests.unit.evaluation.tiny import export, make_llama
from tests.unit.tiny_target import make_target


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target, two drafts for it and conversations of two kinds."""
    folder = tmp_path_factory.mktemp("evaluation")
    model = make_target(folder / "model")
    make_llama(model, len(AutoTokenizer.from_pretrained(model)))
    export(model, 100, folder / "draft", seed=1)
    export(model, 100, folder / "shuffled", seed=2)
    export(model, 50, folder / "smaller")
    messages = [{"role": "user", "content": "ask"}, {"role": "assistant", "content": "tell"}]
    rows = [{"messages": messages, "kind": kind} for kind in ("code", "chat")]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def request_(folder: Path) -> EvaluationRequest:
    return EvaluationRequest(
        draft=folder / "draft",
        data=folder / "data.jsonl",
        shuffled=folder / "shuffled",
        beside={"other": folder / "smaller"},
        max_new_tokens=12,
        speculative_tokens=3,
    )


@pytest.fixture(scope="module")
def report(request_: EvaluationRequest) -> EvaluationReport:
    return evaluate(request_, Progress())


def test_the_report_has_every_figure(report: EvaluationReport) -> None:
    figures = as_json(report)
    assert json.loads(json.dumps(figures)) == figures
    assert figures["lossless"] is True
    assert (figures["divergences"], figures["widest_gap"]) == (0, 0.0)
    assert 1.0 <= figures["acceptance_length"] <= 4.0
    assert len(figures["per_position"]) == len(figures["per_position_conditional"]) == 3
    assert set(figures["by_kind"]) == {"code", "chat"}
    assert figures["sampled_acceptance_length"] >= 1.0
    assert figures["tokens_per_s"]["1"] > 0 < figures["tokens_per_s_alone"]["1"]
    assert figures["prompts"] == 2
    assert set(figures["floors"]) == {"untrained", "shuffled states"}
    assert set(figures["beside"]) == {"other"}
    assert figures["beside"]["other"] >= 1.0
    assert figures["identical"] == figures["identical_alone"] == {"1": 1.0}
    assert figures["floor_acceptance_length"] == pytest.approx(
        max(floor.total.length for floor in report.floors.values()), abs=1e-4
    )


def test_whether_the_target_was_asked_to_think_is_told(
    request_: EvaluationRequest, report: EvaluationReport, tmp_path: Path
) -> None:
    assert as_json(report)["reasoning"] == "drop"
    assert as_table(report).startswith("2 prompts, chains of 3, ")
    kept = evaluate(replace(request_, reasoning="keep"), Progress())
    assert as_json(kept)["reasoning"] == "keep"
    assert as_table(kept).startswith("2 prompts, which ask to think, chains of 3, ")
    with pytest.raises(InputError, match="asked as they were prepared: leave --reasoning out"):
        evaluate(replace(request_, data=tmp_path, reasoning="keep"), Progress())


def test_a_draft_that_does_not_win_is_named(report: EvaluationReport) -> None:
    assert as_json(report)["clearly_wins"] is False
    assert "WARNING: the draft does not clearly beat the floor" in as_table(report)


def test_an_output_that_is_not_the_targets_is_named(report: EvaluationReport) -> None:
    assert "lossless: yes" in as_table(report)
    tie = replace(report, divergences=(Divergence("data.jsonl:1", 7, report.tie / 2),))
    assert tie.lossless
    assert "but for 1 ties of the arithmetic, by 0.0005 at most" in as_table(tie)
    assert (as_json(tie)["divergences"], as_json(tie)["widest_gap"]) == (1, 0.0005)
    wrong = replace(report, divergences=(Divergence("data.jsonl:1", 7, 2.5),))
    assert not wrong.lossless
    assert as_json(wrong)["widest_gap"] == 2.5
    unknown = replace(report, divergences=(Divergence("data.jsonl:1", 7, float("inf")),))
    assert not unknown.lossless
    assert as_json(unknown)["widest_gap"] is None
    assert "data.jsonl:1: differs at token 7, where the target is sure by 2.5" in as_table(wrong)


def test_a_draft_that_changes_the_output_is_found(
    request_: EvaluationRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = OwnBackend.run

    def forge(self: OwnBackend, name, draft, temperatures, *, timed):
        runs = list(honest(self, name, draft, temperatures, timed=timed))
        if draft != request_.draft:
            return runs
        outputs = [list(output) for output in runs[0].outputs]
        outputs[1][4] = (outputs[1][4] + 1) % 100
        return [replace(runs[0], outputs=tuple(map(tuple, outputs))), *runs[1:]]

    monkeypatch.setattr(OwnBackend, "run", forge)
    report = evaluate(request_, Progress())
    assert [(d.place, d.position) for d in report.divergences] == [("data.jsonl:2", 4)]
    assert not report.lossless
    assert report.identical == {1: 0.5}
    assert as_json(report)["identical"] == {"1": 0.5}


@pytest.mark.parametrize(("timed", "places"), [(True, []), (False, ["data.jsonl:1"])])
def test_outputs_are_compared_where_the_arithmetic_is_the_same(
    request_: EvaluationRequest, monkeypatch: pytest.MonkeyPatch, timed: bool, places: list[str]
) -> None:
    """A floor is never timed, and here another output of it means nothing beside timed ones."""
    honest = OwnBackend.run

    def forge(self: OwnBackend, name, draft, temperatures, *, timed):
        [*runs] = honest(self, name, draft, temperatures, timed=timed)
        if name != "untrained":
            return runs
        first, *rest = runs[0].outputs
        return [replace(runs[0], outputs=((*first[:-1], (first[-1] + 1) % 100), *rest))]

    monkeypatch.setattr(OwnBackend, "timed_rounds_otherwise", True)
    monkeypatch.setattr(OwnBackend, "run", forge)
    report = evaluate(replace(request_, timed=timed), Progress())
    assert [divergence.place for divergence in report.divergences] == places


def test_without_speed_acceptance_is_the_same(
    request_: EvaluationRequest, report: EvaluationReport
) -> None:
    untimed = evaluate(replace(request_, timed=False), Progress())
    assert untimed.greedy.acceptance == report.greedy.acceptance
    figures = as_json(untimed)
    assert figures["tokens_per_s"] == figures["tokens_per_s_alone"] == figures["identical"] == {}
    assert "tokens/s" not in as_table(untimed)


@pytest.mark.parametrize("error", [EngineError, InputError])
def test_what_fails_beside_the_draft_takes_nothing_along(
    request_: EvaluationRequest, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    honest = OwnBackend.run

    def fail(self: OwnBackend, name, draft, temperatures, *, timed):
        if draft not in (None, request_.draft, request_.shuffled):
            raise error("did not start")
        return honest(self, name, draft, temperatures, timed=timed)

    monkeypatch.setattr(OwnBackend, "run", fail)
    report = evaluate(request_, Progress())
    assert report.failed == {"untrained": "did not start", "other": "did not start"}
    assert set(report.floors) == {"shuffled states"}
    assert report.floor is report.floors["shuffled states"]
    assert as_json(report)["beside"] == {}
    assert "NOT MEASURED: other: did not start" in as_table(report)
    none = replace(report, floors={})
    assert not none.clearly_wins
    assert as_json(none)["floor_acceptance_length"] is None
    assert "WARNING: no floor could be measured" in as_table(none)


def test_the_greedy_pass_outlives_one_at_a_temperature(
    request_: EvaluationRequest,
    report: EvaluationReport,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    honest = OwnBackend.run

    def fail(self: OwnBackend, name, draft, temperatures, *, timed):
        yield from honest(self, name, draft, temperatures[:1], timed=timed)
        if len(temperatures) > 1:
            assert "draft: acceptance length" in capsys.readouterr().err
            raise EngineError("died")

    monkeypatch.setattr(OwnBackend, "run", fail)
    found = evaluate(request_, Progress())
    assert found.failed == {"temperature 1": "died"}
    assert found.sampled is None
    assert found.greedy.acceptance == report.greedy.acceptance
    assert set(found.beside) == {"other"}


def test_what_does_not_fit_is_refused(folder: Path, request_: EvaluationRequest) -> None:
    with pytest.raises(InputError, match=r"no config.json in .*nowhere: give"):
        evaluate(replace(request_, model=folder / "nowhere"), Progress())
    with pytest.raises(InputError, match="another shape"):
        evaluate(replace(request_, shuffled=folder / "smaller"), Progress())
    with pytest.raises(InputError, match="is the name of a floor"):
        evaluate(replace(request_, beside={"untrained": folder / "smaller"}), Progress())
    other = make_llama(folder / "other", 30)
    with pytest.raises(InputError, match=r"is no draft of .*: their sizes differ"):
        evaluate(replace(request_, model=other), Progress())
    with pytest.raises(InputError, match="does not speculate on a CPU"):
        evaluate(replace(request_, backend="vllm"), Progress())
    assert evaluation.runs_on_cpu()


def test_a_load_that_would_fail_is_not_begun(
    request_: EvaluationRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def start(options: ServingOptions) -> None:
        raise EngineError(f"started with {options.tensor_parallel} ranks")

    monkeypatch.setattr(served, "Server", start)
    monkeypatch.setattr(evaluation, "runs_on_cpu", lambda: False)
    request = replace(request_, tensor_parallel=3)
    with pytest.raises(InputError, match=r"the first parallel; mend them, or .* --no-preflight"):
        evaluate(request, Progress())
    assert "cannot be divided among 3 ranks; give another --tp" in capsys.readouterr().err
    with pytest.raises(EngineError, match="started with 3 ranks"):
        evaluate(replace(request, preflight=False), Progress())
