"""All checks run whatever one of them meets, and stop an extraction only where it would fail."""

import dataclasses
import json
from pathlib import Path

import pytest

import eagle3.checks.run
from eagle3.checks.finding import Finding
from eagle3.checks.machine import Machine
from eagle3.checks.run import check_before_the_load, check_target, run_checks
from eagle3.checks.situation import Situation
from eagle3.errors import InputError
from eagle3.extraction.plan import plan_extraction
from eagle3.extraction.request import ExtractionRequest
from eagle3.progress import Progress
from tests.unit.checks.machines import GB, H200, LAPTOP, server
from tests.unit.extraction.requests import make_request
from tests.unit.tiny_target import make_target


@pytest.fixture
def request_(tmp_path: Path) -> ExtractionRequest:
    data = tmp_path / "data.jsonl"
    data.write_text('{"input_ids": [1, 2, 3], "loss_mask": [0, 1, 1]}\n')
    return make_request(make_target(tmp_path / "target"), data, tmp_path / "out")


def verdicts(findings: list[Finding]) -> dict[str, str]:
    return {finding.check: finding.verdict for finding in findings}


def test_everything_is_in_order_with_a_good_target(request_: ExtractionRequest) -> None:
    findings = verdicts(list(run_checks(Situation(request_, LAPTOP))))
    assert len(findings) == 12
    assert set(findings.values()) == {"ok"}


def test_what_many_checks_need_is_told_once(request_: ExtractionRequest) -> None:
    request_.data.write_text("{}\n")
    findings = list(run_checks(Situation(request_, LAPTOP)))
    told = [finding for finding in findings if finding.verdict != "ok"]
    assert verdicts(told) == {"supervision": "fail", "disk": "warn"}
    assert "data.jsonl:1" in told[0].found
    assert told[1].found == "not checked for the same reason as supervision"


def test_a_target_without_configuration_still_has_its_machine_checked(
    request_: ExtractionRequest,
) -> None:
    (request_.model / "config.json").unlink()
    findings = verdicts(list(run_checks(Situation(request_, LAPTOP))))
    assert findings["devices"] == findings["weights"] == "ok"
    assert findings["decoder"] == "fail"
    assert findings["layers"] == "warn"


@pytest.mark.parametrize(
    ("strange", "verdict"),
    [
        ({"num_key_value_heads": "many"}, {"memory": "warn"}),
        ({"quantization_config": "none"}, {"quantization": "warn", "parallel": "warn"}),
        ({"max_position_embeddings": "8192"}, {"decoder": "fail", "disk": "warn"}),
    ],
)
def test_a_configuration_that_no_check_foresaw_is_no_crash(
    request_: ExtractionRequest, strange: dict[str, str], verdict: dict[str, str]
) -> None:
    path = request_.model / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | strange))
    findings = verdicts(list(run_checks(Situation(request_, LAPTOP))))
    assert findings.items() >= verdict.items()


def before_the_load(
    monkeypatch: pytest.MonkeyPatch, request_: ExtractionRequest, machine: Machine
) -> None:
    monkeypatch.setattr(eagle3.checks.run, "read_machine", lambda: machine)
    check_before_the_load(request_, plan_extraction(request_), Progress())


def test_a_good_start_is_one_line(
    request_: ExtractionRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before_the_load(monkeypatch, request_, LAPTOP)
    assert capsys.readouterr().err == "preflight: 10 ok, 0 to look at\n"


def test_a_warning_is_told_and_stops_nothing(
    request_: ExtractionRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before_the_load(monkeypatch, dataclasses.replace(request_, layers=(1, 2)), LAPTOP)
    warning, summary = capsys.readouterr().err.splitlines()
    assert warning.startswith("preflight: warn: layers: after-layer 1,2 = vllm 2,3, of 8 layers")
    assert summary == "preflight: 9 ok, 1 to look at"


def test_too_little_memory_stops_it(
    request_: ExtractionRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(InputError, match="1 of 10 findings would stop the target, the first mem"):
        before_the_load(monkeypatch, request_, dataclasses.replace(LAPTOP, available=GB))
    assert "preflight: fail: memory: " in capsys.readouterr().err


def test_an_old_driver_stops_it(
    request_: ExtractionRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = request_.model / "config.json"
    experts = json.loads(config.read_text()) | {"num_experts": 8}
    config.write_text(json.dumps(experts))
    with pytest.raises(InputError, match="would stop the target, the first kernels"):
        before_the_load(monkeypatch, request_, server(H200, driver_cuda=(12, 8)))
    assert "PTX 8.8, which the driver 570.86 (CUDA 12.8) does not know" in capsys.readouterr().err


def test_a_target_is_checked_without_data(
    request_: ExtractionRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(eagle3.checks.run, "read_machine", lambda: LAPTOP)
    check_target(request_.model, Progress())
    assert capsys.readouterr().err == "preflight: 6 ok, 0 to look at\n"
    with pytest.raises(InputError, match="1 of 6 findings would stop the target, the first paral"):
        check_target(request_.model, Progress(), tensor_parallel=3)
    capsys.readouterr()
    check_target(request_.model, Progress(), tensor_parallel=3, without={"parallel", "devices"})
    assert capsys.readouterr().err == "preflight: 4 ok, 0 to look at\n"
    monkeypatch.setattr(
        eagle3.checks.run, "read_machine", lambda: dataclasses.replace(LAPTOP, available=GB)
    )
    with pytest.raises(InputError, match="would stop the target, the first memory"):
        check_target(request_.model, Progress())
    # What only an extraction could lower is not named.
    assert "can be had; free memory, or take a machine with more\n" in capsys.readouterr().err


def test_memory_that_a_gpu_lacks_is_told_without_the_options_of_an_extraction(
    request_: ExtractionRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = dataclasses.replace(H200, memory=GB, free=GB)
    monkeypatch.setattr(eagle3.checks.run, "read_machine", lambda: server(small))
    with pytest.raises(InputError, match="the first memory"):
        check_target(request_.model, Progress(), gpu_memory_utilization=0.9)
    told = capsys.readouterr().err
    assert "; raise --tp above 1 or --gpu-memory-utilization above 0.9\n" in told
