"""Runs groups of tests and measurements on this machine's GPUs, and writes what came of them.

    python3 -m tests.gpu.proof [--detach] [--gpus 0,1] GROUP...
    python3 -m tests.gpu.proof list | status | wait SECONDS | report

Groups run side by side where there are GPUs enough, each with its own time. `report.json` and
`report.txt` are written after every step, so that a machine that goes away takes nothing along.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.gpu.groups import Group, Step, groups
from tests.gpu.machine import describe_machine

# Of a step's output, what the report keeps.
_TAIL_CHARACTERS = 6000
_SECONDS_TO_END = 15.0
_SECONDS_BETWEEN_LOOKS = 0.5


class Results:
    """The folder of results: a file a group, logs, and the report made of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = folder / "files"
        self._groups = folder / "groups"
        self._steps = folder / "steps"
        self._lock = threading.Lock()
        for needed in (self.files, self._groups, self._steps):
            needed.mkdir(parents=True, exist_ok=True)

    def step_log(self, group: str, number: int) -> Path:
        """What a step says, while it runs."""
        return self._steps / f"{group}-{number}.log"

    def keep(self, group: str, step: str, said: str) -> None:
        """Adds what a step said to the log of its group."""
        with self._lock, self._log(group).open("a", encoding="utf-8") as log:
            log.write(f"=== {step}\n{said}")

    def forget(self, group: str) -> None:
        """Drops what an earlier run of a group said."""
        self._log(group).unlink(missing_ok=True)

    def _log(self, group: str) -> Path:
        return self._groups / f"{group}.log"

    def work(self, group: str) -> Path:
        """A folder for what a group makes and another run of it can go on with."""
        folder = self.folder / "work" / group
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def write(self, state: dict[str, Any]) -> None:
        """Keeps the state of a group, and makes the report anew."""
        state["told"] = time.time()
        with self._lock:
            _replace(self._groups / f"{state['group']}.json", json.dumps(state, indent=1))
            states = self.read()
            report = {"machine": describe_machine(), "groups": states}
            _replace(self.folder / "report.json", json.dumps(report, indent=1) + "\n")
            _replace(self.folder / "report.txt", as_text(report))

    def read(self) -> list[dict[str, Any]]:
        found = [json.loads(file.read_text()) for file in self._groups.glob("*.json")]
        for state in found:
            if state["ended"] is None and not _is_there(state.get("pid")):
                state |= {"state": "killed", "ended": state["told"]}
        return sorted(found, key=lambda state: state["began"])


def _is_there(pid: int | None) -> bool:
    """Whether the process that runs a group is there, or is still to come."""
    return pid is None or Path(f"/proc/{pid}").exists()


def _replace(path: Path, text: str) -> None:
    scratch = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.new")
    scratch.write_text(text, encoding="utf-8")
    scratch.rename(path)


def as_text(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = [f"{name}: {value}" for name, value in report["machine"].items()]
    for state in report["groups"]:
        lines += ["", _summary(state)]
        for step in state["steps"]:
            lines.append(f"  {step['state']:<8}{step['seconds']:>7.1f} s  {step['name']}")
            if step["figures"] is not None:
                lines.append(f"      {json.dumps(step['figures'])}")
            if step["state"] != "passed":
                lines += [f"      | {line}" for line in step["tail"].splitlines()[-40:]]
    return "\n".join(lines) + "\n"


def _summary(state: dict[str, Any]) -> str:
    seconds = (state["ended"] or time.time()) - state["began"]
    return f"{state['state']:<8}{seconds:>7.1f} s  {state['group']} on GPUs {state['gpus'] or '-'}"


class Gpus:
    """The GPUs of this machine that groups may take; a group has its own to itself."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._free = list(numbers)
        self._all = len(self._free)
        self._news = threading.Condition()

    @contextmanager
    def take(self, count: int) -> Iterator[list[int]]:
        if count > self._all:
            raise ValueError(f"{count} GPUs are needed and --gpus names {self._all}")
        with self._news:
            self._news.wait_for(lambda: len(self._free) >= count)
            taken, self._free = self._free[:count], self._free[count:]
        try:
            yield taken
        finally:
            with self._news:
                self._free = sorted(self._free + taken)
                self._news.notify_all()


def new_state(group: Group) -> dict[str, Any]:
    """Of a group that has not begun."""
    return {
        "group": group.name,
        "state": "waiting",
        "began": time.time(),
        "told": None,
        "ended": None,
        "pid": None,
        "gpus": "",
        "steps": [],
    }


def _entry(name: str, state: str = "running", tail: str = "") -> dict[str, Any]:
    """Of a step, in the state of its group."""
    return {"name": name, "state": state, "seconds": 0.0, "figures": None, "tail": tail}


def run_group(group: Group, gpus: Gpus, results: Results, stopped: threading.Event) -> bool:
    """Runs all steps of a group once its GPUs are free, unless `stopped`; whether all passed."""
    state = new_state(group) | {"pid": os.getpid()}
    results.write(state)
    try:
        with gpus.take(group.gpus) as numbers:
            state |= {
                "state": "running",
                "began": time.time(),
                "gpus": ",".join(map(str, numbers)),
            }
            results.write(state)
            results.forget(group.name)
            deadline = time.monotonic() + group.timeout_s
            for stage in group.stages():
                if not stopped.is_set():
                    run_stage(stage, state, deadline, results, stopped)
    except ValueError as error:
        state["steps"].append(_entry(group.name, "failed", str(error)))
    passed = [step["state"] for step in state["steps"]] == ["passed"] * len(group.steps)
    state |= {"state": "passed" if passed else "failed", "ended": time.time()}
    results.write(state)
    return passed


def run_stage(
    stage: Sequence[Step],
    state: dict[str, Any],
    deadline: float,
    results: Results,
    stopped: threading.Event,
) -> None:
    """Runs steps side by side and enters them into the state of their group."""
    first = len(state["steps"])
    state["steps"] += [_entry(step.name) for step in stage]
    results.write(state)
    with ThreadPoolExecutor(len(stage)) as threads:
        running = [
            threads.submit(run_step, step, number, state, deadline, results, stopped)
            for number, step in enumerate(stage, start=first)
        ]
    for step_run in running:
        step_run.result()


def run_step(
    step: Step,
    number: int,
    state: dict[str, Any],
    deadline: float,
    results: Results,
    stopped: threading.Event,
) -> None:
    """Runs the step whose entry in the state of its group is `number`."""
    group, entry = state["group"], state["steps"][number]
    began = time.monotonic()
    environment = os.environ | step.environment | {"CUDA_VISIBLE_DEVICES": state["gpus"]}
    path = results.step_log(group, number)
    with path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *step.words(results.files, results.work(group))],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    try:
        ends = min(max(deadline, began + 1.0), began + step.timeout_s)
        entry["state"] = _outcome(process, ends, stopped)
    finally:
        _end(process)
    entry["seconds"] = time.monotonic() - began
    said = path.read_bytes().decode("utf-8", "replace")
    entry["figures"] = last_figures(said)
    entry["tail"] = said[-_TAIL_CHARACTERS:]
    results.keep(group, step.name, said)
    results.write(state)


def _outcome(process: subprocess.Popen[bytes], deadline: float, stopped: threading.Event) -> str:
    """How a process ended, or why it is to be ended now."""
    while process.poll() is None:
        if stopped.is_set():
            return "interrupted"
        if time.monotonic() > deadline:
            return "timeout"
        with suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS_BETWEEN_LOOKS)
    return "failed" if process.returncode else "passed"


def last_figures(text: str) -> Any:
    """The last line that is a JSON object, or None."""
    for line in reversed(text.splitlines()):
        if line.startswith("{") and line.endswith("}"):
            try:
                return json.loads(line)
            except ValueError:
                continue
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and all of its session: what stays would hold the GPU."""
    for kind, patience in ((signal.SIGTERM, _SECONDS_TO_END), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, kind)
        except ProcessLookupError:
            break
        ends = time.monotonic() + (patience if process.poll() is None else 1.0)
        while time.monotonic() < ends:
            process.poll()
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.1)
    process.wait()


def _choose(names: Sequence[str]) -> list[Group]:
    known = groups()
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"error: no group {unknown[0]}: there are {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]


def _gpu_numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _print_status(results: Results) -> bool:
    """Prints a line for each group and each step, and its figures; whether all have ended."""
    states = results.read()
    for state in states:
        print(_summary(state))
        for step in state["steps"]:
            print(f"    {step['state']:<8}{step['seconds']:>7.1f} s  {step['name']}")
            if step["figures"] is not None:
                print(f"        {json.dumps(step['figures'])}")
    return all(state["ended"] for state in states)


def _wait(results: Results, seconds: str) -> bool:
    try:
        ends = time.monotonic() + float(seconds)
    except ValueError:
        sys.exit(f"error: wait takes a number of seconds, not {seconds}")
    while time.monotonic() < ends and not all(state["ended"] for state in results.read()):
        time.sleep(0.5)
    return _print_status(results)


def main() -> None:
    parser = argparse.ArgumentParser(prog="run.sh", description=__doc__)
    parser.add_argument(
        "--gpus", type=_gpu_numbers, metavar="N,N", help="GPUs to use; all, if not given"
    )
    parser.add_argument("--detach", action="store_true", help="do not wait for the groups")
    parser.add_argument("words", nargs="+", metavar="GROUP | list | status | wait S | report")
    options = parser.parse_args()
    results = Results(Path(os.environ["EAGLE3_RESULTS"]))
    match options.words:
        case ["list"]:
            for group in groups().values():
                print(
                    f"{group.name:<16}{group.gpus} GPUs  {group.timeout_s:>5.0f} s  {group.about}"
                )
        case ["status"]:
            sys.exit(0 if _print_status(results) else 1)
        case ["wait", seconds]:
            sys.exit(0 if _wait(results, seconds) else 1)
        case ["report"]:
            report = results.folder / "report.txt"
            print(report.read_text() if report.exists() else "nothing has run yet")
        case names:
            chosen = _choose(names)
            gpus = options.gpus or list(range(describe_machine()["gpus"]))
            for group in chosen:
                results.write(new_state(group))
            if options.detach:
                named = ["--gpus", ",".join(map(str, gpus))] if gpus else []
                _detach(results, [*named, *names])
                return
            # A kill ends the steps, too: each is a session of its own.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            try:
                passed = run_groups(chosen, gpus, results)
            except KeyboardInterrupt:
                print("interrupted: no step runs on", file=sys.stderr)
                sys.exit(130)
            sys.exit(0 if passed else 1)


def run_groups(chosen: Sequence[Group], gpus: Sequence[int], results: Results) -> bool:
    """Runs groups side by side, as far as the GPUs go round; whether all passed.

    KeyboardInterrupt ends the steps that run.
    """
    pool = Gpus(gpus)
    stopped = threading.Event()
    with ThreadPoolExecutor(len(chosen)) as threads:
        try:
            passed = list(
                threads.map(lambda group: run_group(group, pool, results, stopped), chosen)
            )
        except KeyboardInterrupt:
            stopped.set()
            raise
    _print_status(results)
    return all(passed)


def _detach(results: Results, arguments: Sequence[str]) -> None:
    """Starts this program again, in a session of its own that nobody's end takes along."""
    with (results.folder / "detached.log").open("a") as log:
        subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.proof", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    print("detached: ask for status, or wait SECONDS")


if __name__ == "__main__":
    main()
