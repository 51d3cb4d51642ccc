"""The commands that groups run are commands that there are."""

import math
from importlib import import_module
from pathlib import Path

import click
import pytest

from tests.gpu import groups as named
from tests.gpu.groups import Step, groups

COMMANDS = ("extract", "train", "train_peer", "evaluate", "bench_extract", "bench_train")


@pytest.fixture(autouse=True)
def no_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests are not in question here."""
    monkeypatch.setattr(named, "_tests", lambda *names: ())
    monkeypatch.setattr(named, "read_targets", dict)


def words_of(step: Step) -> list[str]:
    """All of them, as where everything is there."""
    return [*step.command, *(word for further in step.where_there for word in further)]


def test_the_steps_of_a_group_have_time_in_it() -> None:
    for group in groups().values():
        limits = [step.timeout_s for step in group.steps if step.timeout_s < math.inf]
        assert all(limit < group.timeout_s / 2 for limit in limits)


def test_a_comparison_does_without_a_draft_that_could_not_be_trained() -> None:
    for group in groups().values():
        for step in group.steps:
            assert not {"--beside", "--shuffled"} & set(step.command), f"{group.name}: {step.name}"


def test_every_command_knows_the_options_that_it_is_given() -> None:
    steps = [step for group in groups().values() for step in group.steps]
    seen = set()
    for step in steps:
        if step.command[:1] == ("-m",) and step.command[1].startswith("eagle3."):
            name = step.command[1].removeprefix("eagle3.")
            command: click.Command = getattr(import_module(step.command[1]), name)
            command.make_context(name, words_of(step)[2:])
            seen.add(name)
    assert seen >= set(COMMANDS)


def test_what_a_step_reads_was_written_by_a_stage_before_it() -> None:
    for group in groups().values():
        written: set[str] = set()
        for stage in group.stages():
            outs = [out for step in stage if (out := out_of(step)) is not None]
            assert len(set(outs)) == len(outs), f"{group.name}: {outs}"
            for step in stage:
                for word in words_of(step):
                    path = word.rpartition("=")[2]
                    if path.startswith("{work}/") and path != out_of(step):
                        name = Path(path).parts[1]
                        assert name in written, f"{group.name}: {step.name}: {path}"
            written |= {Path(out).parts[1] for out in outs if out.startswith("{work}/")}


def out_of(step: Step) -> str | None:
    words = words_of(step)
    return words[words.index("--out") + 1] if "--out" in words else None
