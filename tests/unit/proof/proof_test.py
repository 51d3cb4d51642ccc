"""Groups run side by side on GPUs of their own, within their time, and all is reported."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.gpu.groups import Group, Step
from tests.gpu.proof import Gpus, Results, last_figures, main, new_state, run_group, run_groups


def python(code: str, name: str = "step") -> Step:
    return Step(name, ("-c", code))


def group(*steps: Step, gpus: int = 0, timeout_s: float = 60.0) -> Group:
    return Group("some", "a group of a test", gpus, timeout_s, steps)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    monkeypatch.setattr("tests.gpu.proof.describe_machine", lambda: {"gpus": 2, "gpu": "none"})
    return Results(tmp_path / "results")


def report_of(results: Results) -> list[dict[str, object]]:
    return json.loads((results.folder / "report.json").read_text())["groups"]


def test_a_failing_step_fails_its_group_and_the_next_step_runs(results: Results) -> None:
    steps = (
        python("print('broken'); raise SystemExit(3)", "first"),
        python("print('{\"rate\": 7}')", "second"),
    )
    assert not run_group(group(*steps), Gpus([]), results, threading.Event())
    [state] = report_of(results)
    assert state["state"] == "failed"
    first, second = state["steps"]  # type: ignore[misc]
    assert (first["state"], second["state"]) == ("failed", "passed")
    assert second["figures"] == {"rate": 7}
    text = (results.folder / "report.txt").read_text()
    assert "      | broken" in text
    assert '{"rate": 7}' in text


def test_a_step_that_takes_too_long_is_ended_with_its_children(
    results: Results, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    code = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(note)!r}).write_text(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    began = time.monotonic()
    assert not run_group(group(python(code), timeout_s=15.0), Gpus([]), results, threading.Event())
    assert time.monotonic() - began < 300
    [state] = report_of(results)
    assert state["steps"][0]["state"] == "timeout"  # type: ignore[index]
    with contextlib.suppress(psutil.NoSuchProcess):
        assert psutil.Process(int(note.read_text())).status() == psutil.STATUS_ZOMBIE


def test_a_step_leaves_time_to_those_behind_it(results: Results) -> None:
    slow = Step("slow", ("-c", "import time; time.sleep(600)"), timeout_s=2.0)
    assert not run_group(group(slow, python("pass")), Gpus([]), results, threading.Event())
    [state] = report_of(results)
    assert [step["state"] for step in state["steps"]] == ["timeout", "passed"]  # type: ignore[attr-defined]


def test_steps_side_by_side_end_before_the_next_begins(results: Results, tmp_path: Path) -> None:
    """Each of the two waits for the other, and is reported in its own place."""
    code = (
        "import pathlib, sys, time\n"
        "own, other = map(pathlib.Path, sys.argv[1:])\n"
        "own.touch()\n"
        "while not other.exists(): time.sleep(0.05)\n"
        "print('saw', other.name)\n"
    )
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    steps = (
        Step("first", ("-c", code, one, two)),
        Step("second", ("-c", code, two, one), beside=True),
        Step("last", ("-c", code, one, two)),
    )
    assert run_group(group(*steps), Gpus([]), results, threading.Event())
    [state] = report_of(results)
    told = [(step["name"], step["tail"]) for step in state["steps"]]  # type: ignore[attr-defined]
    assert told == [("first", "saw two\n"), ("second", "saw one\n"), ("last", "saw two\n")]
    log = (results.folder / "groups/some.log").read_text()
    assert log.count("===") == 3
    assert log.endswith("=== last\nsaw two\n")


def test_a_group_that_runs_again_has_a_new_log(results: Results) -> None:
    for words in ("once", "again"):
        run_group(group(python(f"print({words!r})")), Gpus([]), results, threading.Event())
    assert (results.folder / "groups/some.log").read_text() == "=== step\nagain\n"


def test_words_are_left_out_where_what_they_name_is_not_there(results: Results) -> None:
    code = "import sys; print('{\"words\": ' + repr(sys.argv[1:]).replace(chr(39), chr(34)) + '}')"
    further = (("--beside", "one={work}/one"), ("--beside", "two={work}/two"))
    (results.work("some") / "two").mkdir()
    step = Step("step", ("-c", code, "{files}"), where_there=further)
    assert run_group(group(step), Gpus([]), results, threading.Event())
    [state] = report_of(results)
    words = [str(results.files), "--beside", f"two={results.work('some')}/two"]
    assert state["steps"][0]["figures"] == {"words": words}  # type: ignore[index]


def test_figures_are_told_as_soon_as_there_are_any(
    results: Results, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_groups([group(python("print('{\"rate\": 7}')"))], [], results)
    assert '        {"rate": 7}\n' in capsys.readouterr().out


def test_groups_have_gpus_to_themselves(results: Results) -> None:
    gpus = Gpus([4, 6])
    seen: list[list[int]] = []
    both = threading.Barrier(2, timeout=200)

    def one() -> None:
        with gpus.take(1) as numbers:
            both.wait()
            seen.append(numbers)
            time.sleep(0.1)

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [[4], [6]]
    with gpus.take(2) as numbers:
        assert numbers == [4, 6]
    code = "import os; print('{\"seen\": \"' + os.environ['CUDA_VISIBLE_DEVICES'] + '\"}')"
    assert run_group(group(python(code), gpus=2), gpus, results, threading.Event())
    assert report_of(results)[0]["steps"][0]["figures"] == {"seen": "4,6"}  # type: ignore[index]


def test_more_gpus_than_there_are_is_told(results: Results) -> None:
    assert not run_group(group(python("pass"), gpus=3), Gpus([0, 1]), results, threading.Event())
    assert "3 GPUs are needed" in (results.folder / "report.txt").read_text()


def test_figures_are_the_last_line_of_json() -> None:
    assert last_figures('{"a": 1}\nwords\n{"a": 2}\n{broken}\nwords') == {"a": 2}
    assert last_figures("none {}") is None


def test_an_interrupt_ends_the_step_that_runs_and_no_other_begins(results: Results) -> None:
    steps = (python("import time; time.sleep(600)", "first"), python("pass", "second"))

    def interrupt() -> None:
        while not any(state["steps"] for state in results.read()):
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_groups([group(*steps)], [], results)
    assert time.monotonic() - began < 300
    [state] = report_of(results)
    assert state["state"] == "failed"
    assert [step["state"] for step in state["steps"]] == ["interrupted"]  # type: ignore[attr-defined]


def test_a_group_whose_runner_was_killed_is_not_waited_for(results: Results) -> None:
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    results.write(new_state(group()) | {"pid": gone.pid})
    [state] = results.read()
    assert state["state"] == "killed"
    assert state["ended"] == state["told"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--gpus", "first", "imports"], 2, "argument --gpus: invalid"),
        (["wait", "long"], 1, "error: wait takes a number of seconds, not long"),
        (["none"], 1, "error: no group none: there are imports, "),
        (["report"], 0, "nothing has run yet"),
    ],
)
def test_what_is_asked_wrongly_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["run.sh", *words])
    monkeypatch.setenv("EAGLE3_RESULTS", str(tmp_path))
    monkeypatch.setattr("tests.gpu.proof.groups", lambda: {"imports": group(), "others": group()})
    found: object = 0
    try:
        main()
    except SystemExit as end:
        found = end.code
    told = capsys.readouterr()
    # A text in the place of a code is told on stderr, and the code is 1.
    said = told.out + told.err + (found if isinstance(found, str) else "")
    assert message in said
    assert (1 if isinstance(found, str) else found) == code
