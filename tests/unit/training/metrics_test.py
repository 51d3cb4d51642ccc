"""What sums over rows tell, on the console, in the file and on the page."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from eagle3.errors import InputError
from eagle3.progress import Progress
from eagle3.training import trackers
from eagle3.training.log import METRICS, Log, Record, describe, read_records
from eagle3.training.metrics import StepMetrics, metrics_of, sums_of
from eagle3.training.report import Curve, draw_chart, write_report
from eagle3.training.trackers import NoTracker, open_tracker, scalars
from eagle3.training.unroll import UnrolledLoss

METRICS_OF_TWO = StepMetrics((2.0, 3.0), (0.5, 0.4), (0.5, 0.2), (0.5, 0.4))
RECORD = Record(
    "train",
    20,
    640,
    4.4,
    METRICS_OF_TWO,
    tokens_per_s=1234.5,
    mfu=0.41,
    waited=0.001,
    learning_rate=0.1,
)


def test_sums_of_parts_are_the_metrics_of_the_whole() -> None:
    def part(losses: list[float], rows: list[list[int]], denominator: int) -> torch.Tensor:
        correct, accepted, reached, count = (torch.tensor(row) for row in rows)
        loss_S = torch.tensor(losses) / denominator
        loss = UnrolledLoss(loss_S.sum(), loss_S, correct, accepted, reached, count)
        return sums_of(loss, torch.full((2,), denominator))

    first = part([6.0, 9.0], [[3, 2], [3, 1], [4, 2], [4, 3]], 10)
    second = part([4.0, 3.0], [[1, 2], [1, 1], [6, 2], [6, 3]], 10)
    found = metrics_of(first + second)
    assert found.loss == pytest.approx((1.0, 2.0))
    assert found.accuracy == pytest.approx((0.4, 4 / 6))
    assert found.joint == pytest.approx((0.4, 2 / 6))
    assert found.conditional == pytest.approx((0.4, 0.5))
    assert found.acceptance_length == pytest.approx(1 + 0.4 + 2 / 6)
    assert found.total_loss(0.5) == pytest.approx(2.0)


def test_no_counted_row_is_no_division_by_zero() -> None:
    assert metrics_of(torch.zeros(5, 2)).acceptance_length == 1


def test_the_line_tells_it_all() -> None:
    assert describe(RECORD, 300, 65) == (
        "step 20/300, loss 4.400 (2.00 3.00), acceptance 1.700, joint 50% 20%, "
        "conditional 50% 40%, 1,234 tokens/s, MFU 41%, waiting 0.1%, 1:05 left"
    )
    validation = describe(Record("validation", 20, 640, 4.4, METRICS_OF_TWO), 300, None)
    assert validation.startswith("  validation, loss 4.400")
    assert "tokens/s" not in validation


def test_records_are_kept_up_to_the_step_that_a_run_goes_on_from(tmp_path: Path) -> None:
    log = Log(tmp_path, Progress(), 300, NoTracker())
    log.begin(None)
    for step in (10, 20, 30):
        log.write(replace(RECORD, step=step))
    with (tmp_path / METRICS).open("a") as file:
        file.write('{"kind": "train", "st')
    log.begin(20)
    records = read_records(tmp_path / METRICS)
    assert [record["step"] for record in records] == [10, 20]
    assert records[0]["joint_per_step"] == [0.5, 0.2]
    assert records[0]["acceptance_length"] == pytest.approx(1.7)
    assert "gradient_norm" not in records[0]
    log.begin(None)
    assert (tmp_path / METRICS).read_text() == ""


def test_trackers_get_plain_numbers() -> None:
    fields = json.loads(json.dumps(RECORD.fields()))
    assert scalars(fields)["train/joint_per_step/1"] == 0.2
    assert scalars(fields)["train/loss"] == 4.4
    assert not {"train/step", "train/kind"} & scalars(fields).keys()


def test_a_tracker_that_is_not_installed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(trackers._PACKAGES, "wandb", "no_such_package")
    with pytest.raises(InputError, match="--track wandb needs the package no_such_package, whi"):
        open_tracker("wandb", tmp_path, {}, Progress())


@pytest.mark.parametrize(
    ("tracker", "advice"),
    [
        ("wandb", r"log in with `wandb login`, set WANDB_MODE=offline where .*, or leave --track"),
        ("trackio", "see to that, or leave --track out; metrics.jsonl is written in any case"),
    ],
)
@pytest.mark.parametrize("begins", ["def init(**options): ", ""])
def test_a_tracker_that_does_not_start_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracker: str, advice: str, begins: str
) -> None:
    (tmp_path / "broken_service.py").write_text(f"{begins}raise ValueError('no API\\nkey')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_service", raising=False)
    monkeypatch.setitem(trackers._PACKAGES, tracker, "broken_service")
    started = rf"--track {tracker} did not start \(ValueError: no API key\): {advice}"
    with pytest.raises(InputError, match=started):
        open_tracker(tracker, tmp_path, {}, Progress())


def test_a_tracker_gets_every_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fake_service.py").write_text(
        "calls = []\n"
        "def init(**options): calls.append(options['project'])\n"
        "def log(values, step): calls.append((step, values['train/loss']))\n"
        "def finish(): calls.append('finish')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(trackers._PACKAGES, "trackio", "fake_service")
    tracker = open_tracker("trackio", tmp_path, {"seed": 0}, Progress())
    Log(tmp_path, Progress(), 300, tracker).write(RECORD)
    tracker.close()
    import fake_service  # pyrefly: ignore

    assert fake_service.calls == ["eagle3", (20, 4.4), "finish"]


def test_a_tracker_that_fails_in_the_middle_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told once, and every record is in the file."""
    (tmp_path / "fading_service.py").write_text(
        "def init(**options): pass\n"
        "def log(values, step): raise ConnectionError('no\\nroute')\n"
        "def finish(): raise AssertionError('it is not asked again')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(trackers._PACKAGES, "wandb", "fading_service")
    tracker = open_tracker("wandb", tmp_path, {}, Progress())
    log = Log(tmp_path, Progress(), 300, tracker)
    log.write(RECORD)
    log.write(replace(RECORD, step=30))
    tracker.close()
    said = capsys.readouterr().err
    assert said.count("warning: --track wandb failed (ConnectionError: no route) and gets n") == 1
    assert [record["step"] for record in read_records(tmp_path / METRICS)] == [20, 30]


def test_tensorboard_gets_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: dict[str, tuple[float, int]] = {}

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            assert folder == str(tmp_path / "tensorboard")

        def add_scalar(self, name: str, value: float, step: int) -> None:
            written[name] = (value, step)

        def close(self) -> None:
            written["closed"] = (0.0, 0)

    monkeypatch.setitem(sys.modules, "tensorboard", ModuleType("tensorboard"))
    module = ModuleType("torch.utils.tensorboard")
    monkeypatch.setattr(module, "SummaryWriter", SummaryWriter, raising=False)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    tracker = open_tracker("tensorboard", tmp_path, {}, Progress())
    Log(tmp_path, Progress(), 300, tracker).write(RECORD)
    tracker.close()
    assert written["train/loss"] == (4.4, 20)
    assert written["train/joint_per_step/1"] == (0.2, 20)
    assert "closed" in written


def test_a_chart_places_the_extremes_in_its_corners() -> None:
    chart = draw_chart("a < b", [Curve("one", [(0, 1.0), (10, 3.0)]), Curve("two", [(5, 2.0)])])
    assert '<polyline points="56.0,236.0 664.0,24.0"' in chart
    assert "two, step 5: 2<" in chart
    assert "a &lt; b" in chart


def test_a_page_holds_every_curve_and_needs_nothing_else(tmp_path: Path) -> None:
    records = [
        replace(RECORD, step=step, kind=kind).fields()
        for step in (10, 20)
        for kind in ("train", "validation")
    ]
    write_report(tmp_path / "report.html", "run <1>", "went well", "a: b\n", records)
    page = (tmp_path / "report.html").read_text()
    for title in (
        "Simulated acceptance length over tokens seen",
        "Loss",
        "Learning rate",
        "Tokens/s",
    ):
        assert title in page
    assert "validation, tokens 640: 1.7<" in page
    assert "run &lt;1&gt;" in page
    assert "Norm of the gradient" not in page
    assert "http" not in page
