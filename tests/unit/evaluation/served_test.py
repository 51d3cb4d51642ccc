"""What is asked of vLLM, and what is made of its answers: vLLM itself needs a GPU."""

from pathlib import Path

import pytest

from eagle3.evaluation import served
from eagle3.evaluation.backend import Run
from eagle3.evaluation.prompts import Prompt, PromptSet
from eagle3.evaluation.request import EvaluationRequest
from eagle3.evaluation.served import ServedBackend
from eagle3.progress import Progress
from tests.unit.evaluation.fake_server import FakeServer

PROMPTS = tuple(Prompt(f"data:{n}", "code" if n % 3 else "chat", (n, n + 1)) for n in range(5))
DRAFT = Path("draft")


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> ServedBackend:
    monkeypatch.setattr(served, "Server", FakeServer)
    request = EvaluationRequest(DRAFT, Path("data"), batches=(1, 4), speculative_tokens=2)
    return ServedBackend(request, Path("model"), PromptSet(PROMPTS, frozenset()), Progress())


def run(backend: ServedBackend, *, timed: bool, draft: Path | None = DRAFT) -> list[Run]:
    return list(backend.run("draft", draft, (0.0, 1.0), timed=timed))


def test_a_timed_draft_runs_one_prompt_at_a_time_and_greedily_in_batches(
    backend: ServedBackend,
) -> None:
    greedy, sampled = run(backend, timed=True)
    # Two kinds of prompts one at a time, then as many as fill two batches of four; then sampled.
    assert FakeServer.calls == [
        (2, 1, 0.0),
        (3, 1, 0.0),
        (8, 4, 0.0),
        (2, 1, 1.0),
        (3, 1, 1.0),
    ]
    assert not FakeServer.eager
    assert greedy.outputs == tuple((n, 1) for n in range(5))
    assert greedy.result.tokens_per_s == {1: 10 / 4.0, 4: 16 / 0.5}
    assert greedy.result.total.length == 1.75
    assert set(greedy.result.acceptance) == {"chat", "code"}
    assert sampled.result.tokens_per_s.keys() == {1}


def test_what_is_not_timed_runs_a_kind_at_once_and_starts_sooner(backend: ServedBackend) -> None:
    greedy, _ = run(backend, timed=False)
    assert FakeServer.calls == [(2, 2, 0.0), (3, 3, 0.0), (2, 2, 1.0), (3, 3, 1.0)]
    assert FakeServer.eager
    assert greedy.result.tokens_per_s == {}
    assert greedy.result.total.length == 1.75


def test_a_target_that_is_not_timed_only_answers(backend: ServedBackend) -> None:
    [alone] = backend.run("alone", None, (0.0,), timed=False)
    assert FakeServer.calls == []
    assert alone.outputs == tuple((n, 2) for n in range(5))
    assert alone.result.tokens_per_s == {}
    assert backend.gap(PROMPTS[1], alone.outputs[1], 0, other=9) == float("inf")


def test_outputs_are_compared_with_those_of_one_at_a_time(backend: ServedBackend) -> None:
    alone, _ = run(backend, timed=True, draft=None)
    greedy, _ = run(backend, timed=True)
    # The fake's answers change with the batch, as a target's in bfloat16 may.
    assert greedy.identical(alone) == alone.identical(alone) == {1: 1.0, 4: 0.0}
    assert backend.gap(PROMPTS[1], alone.outputs[1], 0, other=1) == 0.0
    assert backend.gap(PROMPTS[1], alone.outputs[1], 0, other=9) == float("inf")


def test_a_gap_is_asked_of_the_outputs_whose_scores_are_known(
    backend: ServedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeServer, "scored_differs", True)
    [alone] = backend.run("alone", None, (0.0,), timed=True)
    assert alone.outputs[1] == (1, 7)
    assert alone.identical(alone) == {1: 0.0, 4: 0.0}
    assert backend.gap(PROMPTS[1], alone.outputs[1], 1, other=9) == float("inf")


def test_passes_tell_how_far_they_are(
    backend: ServedBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    run(backend, timed=True)
    said = capsys.readouterr().err
    for line in (
        "draft: starting vLLM: done in ",
        "draft, greedy: 5/5 samples, 10/320 tokens, ",
        "draft, greedy, 4 at once: 8/8 samples, ",
        "draft, temperature 1: 5/5 samples, ",
    ):
        assert line in said
    run(backend, timed=False, draft=None)
    assert "draft, greedy, with scores: 5/5 samples, " in capsys.readouterr().err


def test_each_prompt_has_a_seed_of_its_own(backend: ServedBackend) -> None:
    """The same as in the own loop: by the prompt's place among all of them."""
    run(backend, timed=False)
    by_kind = [n for kind in (True, False) for n in range(5) if (n % 3 == 0) == kind]
    assert FakeServer.seeds == by_kind
