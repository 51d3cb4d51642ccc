"""What Bazel wrote of a build, its event log and its log of executions, and what they show."""

import contextlib
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.remote.errors import ServiceError

CACHED = "remote cache hit"
REMOTE = "remote"
_CACHED_HERE = "Bazel's own cache"
_NOT_TOLD = "where Bazel does not say"
# The rest ran on this machine.
_NOT_HERE = (REMOTE, CACHED, _CACHED_HERE)
_BLOCK_CHARS = 1 << 24
_LARGEST = 5

# (build, target) of a test -> worker, of the finished jobs in the service's table.
Workers = Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class Attempt:
    """One attempt of a test. where: `remote`, `remote cache hit`, or how it ran on this machine."""

    label: str
    invocation: str
    where: str
    passed: bool


@dataclass(frozen=True)
class Inputs:
    """What a test's action needs on the executor."""

    label: str
    files: int
    size_bytes: int


def read_runs(events: Path) -> list[Attempt]:
    """The attempts in a --build_event_json_file. Raises ServiceError where it is something else."""
    runs, invocation = [], ""
    for event in _documents(events):
        kind = event.get("id", {})
        if "started" in kind:
            invocation = event["started"]["uuid"]
        elif "testResult" in kind and "testResult" in event:
            result = event["testResult"]
            execution = result.get("executionInfo", {})
            runs.append(
                Attempt(
                    label=kind["testResult"]["label"],
                    invocation=invocation,
                    where=_CACHED_HERE
                    if result.get("cachedLocally")
                    else execution.get("strategy", _NOT_TOLD),
                    passed=result["status"] == "PASSED",
                )
            )
    if not invocation:
        raise ServiceError(f"{events} is not what --build_event_json_file wrote")
    return runs


def read_inputs(executions: Path) -> list[Inputs]:
    """The tests' actions in an --execution_log_json_file, those with the largest inputs first."""
    found = [
        Inputs(
            label=spawn["targetLabel"],
            files=len(spawn["inputs"]),
            # A link has no digest.
            size_bytes=sum(
                int(file["digest"]["sizeBytes"]) for file in spawn["inputs"] if "digest" in file
            ),
        )
        for spawn in _documents(executions)
        if spawn.get("mnemonic") == "TestRunner" and spawn.get("runner") in (REMOTE, CACHED)
    ]
    return sorted(found, key=lambda inputs: inputs.size_bytes, reverse=True)


def places(runs: Sequence[Attempt], workers: Workers) -> list[str]:
    """A line for each place: how many tests passed there; those of this machine are named."""
    by_place: dict[str, list[Attempt]] = defaultdict(list)
    for run in runs:
        by_place[_place(run, workers)].append(run)
    lines = []
    for place, there in sorted(by_place.items()):
        lines.append(f"{place}: {sum(run.passed for run in there)} of {len(there)} passed")
        if there[0].where not in _NOT_HERE:
            lines += [f"  {run.label}" for run in there]
    return lines


def _place(run: Attempt, workers: Workers) -> str:
    if run.where != REMOTE:
        return run.where
    worker = workers.get((run.invocation, run.label))
    return f"worker {worker}" if worker else "remote, and no job of the service"


def unproven(runs: Sequence[Attempt], workers: Workers) -> list[Attempt]:
    """Tests that ran remotely by Bazel's word alone."""
    return [
        run for run in runs if run.where == REMOTE and (run.invocation, run.label) not in workers
    ]


def sizes(inputs: Sequence[Inputs]) -> list[str]:
    """The median and the largest of the tests' actions; `inputs` begin with the largest."""
    if not inputs:
        return ["no test action ran remotely"]
    median = statistics.median(action.size_bytes for action in inputs)
    return [
        f"inputs of {len(inputs)} test actions: median {median / 1e6:.2f} MB; the largest:",
        *(
            f"  {action.size_bytes / 1e6:.2f} MB in {action.files} files: {action.label}"
            for action in inputs[:_LARGEST]
        ),
    ]


def _documents(file: Path) -> Iterator[dict]:
    """JSON objects that follow one another; a whole log may be larger than the memory."""
    decoder, text = json.JSONDecoder(), ""
    try:
        with file.open() as log:
            while block := log.read(_BLOCK_CHARS):
                text = (text + block).lstrip()
                begin = 0
                # The last object of a block ends in one of the next.
                with contextlib.suppress(json.JSONDecodeError):
                    while True:
                        document, end = decoder.raw_decode(text, begin)
                        if not isinstance(document, dict):
                            raise ServiceError(f"{file} is no log of Bazel's")
                        yield document
                        begin = _end_of_space(text, end)
                text = text[begin:]
    except (OSError, UnicodeDecodeError) as error:
        raise ServiceError(f"cannot read {file}: {error}") from error
    if text:
        raise ServiceError(f"{file} ends in the middle, or is no JSON: is the build done?")


def _end_of_space(text: str, begin: int) -> int:
    while text[begin : begin + 1].isspace():
        begin += 1
    return begin
