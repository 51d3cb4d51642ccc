"""What Bazel's logs say of where tests ran, held against the service's table of jobs."""

import json
from pathlib import Path

import pytest

from tools.remote import build_logs
from tools.remote.build_logs import Inputs, read_inputs, read_runs
from tools.remote.errors import ServiceError

BUILD = "0b5e"


def result(label: str, *, status: str = "PASSED", cached: bool = False, **execution: str) -> dict:
    body = {"status": status, "executionInfo": execution, "cachedLocally": cached}
    return {"id": {"testResult": {"label": label, "run": 1}}, "testResult": body}


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """One build: a test on a worker, one that failed there, a hit, one here, one not run again."""
    lines = [
        {"id": {"started": {}}, "started": {"uuid": BUILD}},
        {"id": {"targetCompleted": {"label": "//a:lib"}}, "aborted": {"reason": "SKIPPED"}},
        result("//a:far", strategy="remote"),
        result("//a:fails", status="FAILED", strategy="remote"),
        result("//a:hit", strategy="remote cache hit"),
        result("//a:near", strategy="local"),
        result("//a:old", cached=True),
    ]
    file = tmp_path / "events.json"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file


def test_tests_are_counted_by_place_and_those_on_this_machine_named(events: Path) -> None:
    workers = {(BUILD, "//a:far"): "cpu", (BUILD, "//a:fails"): "cpu"}
    assert build_logs.places(read_runs(events), workers) == [
        "Bazel's own cache: 1 of 1 passed",
        "local: 1 of 1 passed",
        "  //a:near",
        "remote cache hit: 1 of 1 passed",
        "worker cpu: 1 of 2 passed",
    ]


def test_a_test_without_a_job_of_that_build_is_unproven(events: Path) -> None:
    runs = read_runs(events)
    workers = {(BUILD, "//a:far"): "cpu", ("another", "//a:fails"): "cpu"}
    assert [run.label for run in build_logs.unproven(runs, workers)] == ["//a:fails"]
    assert "remote, and no job of the service: 0 of 1 passed" in build_logs.places(runs, workers)


def test_a_test_that_bazel_gives_no_place_is_listed(tmp_path: Path) -> None:
    events = [{"id": {"started": {}}, "started": {"uuid": BUILD}}, result("//a:x", status="FAILED")]
    (tmp_path / "events").write_text("".join(map(json.dumps, events)))
    lines = build_logs.places(read_runs(tmp_path / "events"), {})
    assert lines == ["where Bazel does not say: 0 of 1 passed", "  //a:x"]


def test_a_log_that_ends_in_the_middle_is_refused(events: Path) -> None:
    events.write_text(events.read_text()[:-20])
    with pytest.raises(ServiceError, match=r"events\.json ends in the middle"):
        read_runs(events)


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_text('{"id": {}}')
    with pytest.raises(ServiceError, match="not what --build_event_json_file wrote"):
        read_runs(tmp_path / "other")
    (tmp_path / "other").write_text("[1]")
    with pytest.raises(ServiceError, match="other is no log of Bazel's"):
        read_runs(tmp_path / "other")
    with pytest.raises(ServiceError, match=r"cannot read .*none"):
        read_runs(tmp_path / "none")


@pytest.mark.parametrize("block_chars", [7, 1 << 20])
def test_inputs_are_added_up_whatever_the_blocks_they_are_read_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_chars: int
) -> None:
    monkeypatch.setattr(build_logs, "_BLOCK_CHARS", block_chars)

    def spawn(label: str, mnemonic: str, runner: str, *sizes: int) -> str:
        inputs: list[dict] = [{"path": "x", "digest": {"sizeBytes": str(size)}} for size in sizes]
        inputs.append({"path": "link", "symlinkTargetPath": "/opt"})
        spawn = {"targetLabel": label, "mnemonic": mnemonic, "runner": runner, "inputs": inputs}
        return json.dumps(spawn, indent=2)

    log = tmp_path / "executions.json"
    log.write_text(
        spawn("//a:small", "TestRunner", "remote", 10, 20)
        + spawn("//a:large", "TestRunner", "remote cache hit", 4_000_000)
        + spawn("//a:here", "TestRunner", "local", 9)
        + "\n"
        + spawn("//a:lib", "CppLink", "remote", 9)
    )
    found = read_inputs(log)
    assert found == [Inputs("//a:large", 2, 4_000_000), Inputs("//a:small", 3, 30)]
    assert build_logs.sizes(found)[1] == "  4.00 MB in 2 files: //a:large"
