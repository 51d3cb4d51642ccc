"""The commands that groups run are commands that there are."""

from importlib import import_module
from pathlib import Path

import click
import pytest

from tests.gpu import groups as named
from tests.gpu.groups import groups

COMMANDS = ("extract", "train", "train_peer", "evaluate", "bench_extract", "bench_train")


@pytest.fixture(autouse=True)
def no_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests are not in question here."""
    monkeypatch.setattr(named, "_tests", lambda *names: ())
    monkeypatch.setattr(named, "read_targets", dict)


def test_every_command_knows_the_options_that_it_is_given() -> None:
    steps = [step for group in groups().values() for step in group.steps]
    seen = set()
    for step in steps:
        if step.command[:1] == ("-m",) and step.command[1].startswith("eagle3."):
            name = step.command[1].removeprefix("eagle3.")
            command: click.Command = getattr(import_module(step.command[1]), name)
            command.make_context(name, list(step.command[2:]))
            seen.add(name)
    assert seen >= set(COMMANDS)


def test_what_a_step_reads_was_written_by_one_before_it() -> None:
    for group in groups().values():
        written: set[str] = set()
        for step in group.steps:
            words = list(step.command)
            out = words[words.index("--out") + 1] if "--out" in words else None
            for word in words:
                path = word.rpartition("=")[2]
                if path.startswith("{work}/") and path != out:
                    assert str(Path(path).parts[1]) in written, f"{group.name}: {step.name}: {path}"
            if out is not None and out.startswith("{work}/"):
                written.add(Path(out).parts[1])
