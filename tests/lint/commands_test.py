"""Commands in the documents have the options that they are given there."""

import re
import shlex
from importlib import import_module
from itertools import chain
from pathlib import Path

import click
import pytest

from tests.lint import workspace

_DOCUMENTS = [str(file.relative_to(workspace.root())) for file in workspace.files(".md")]
# However a command is started: by Bazel, as a module, or as it was built.
_COMMAND = re.compile(r"(?://eagle3:|-m eagle3\.|bazel-bin/eagle3/)(\w+)(?: --(?= ))?([^#&\n]*)")
_ROAD = ["prepare", "extract", "train", "evaluate", "serve"]


def commands(document: Path) -> list[list[str]]:
    """The blocks of code in a document; of each its commands, with their words."""
    text = document.read_text(encoding="utf-8")
    return [
        [f"{name} {words}" for name, words in _COMMAND.findall(block.replace("\\\n", " "))]
        for block in re.findall(r"^```\w*\n(.*?)^```$", text, flags=re.M | re.S)
    ]


def check(line: str) -> None:
    """Raises click.UsageError for an option that the command does not have."""
    name, *words = shlex.split(line)
    command: click.Command = getattr(import_module(f"eagle3.{name}"), name)
    parser = command.make_parser(click.Context(command, info_name=name))
    parser.parse_args(words)


@pytest.mark.parametrize("name", _DOCUMENTS)
def test_options_are_known(name: str) -> None:
    unknown = []
    for line in chain.from_iterable(commands(workspace.root() / name)):
        try:
            check(line)
        except click.UsageError as error:
            unknown.append(f"{line}: {error.format_message()}")
    assert unknown == []


def test_the_whole_road_is_five_commands() -> None:
    blocks = commands(workspace.root() / "README.md")
    assert _ROAD in [[line.split()[0] for line in block] for block in blocks]


@pytest.mark.parametrize(
    "line",
    [
        "tools/bazel run //eagle3:train -- --no-such-option 5",
        "python3 -m eagle3.bench_train --json --no-such-option",
        "srun --ntasks 16 bazel-bin/eagle3/train --store /states --no-such-option",
    ],
)
def test_an_unknown_option_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "page.md").write_text(f"```\n{line}\n```\n")
    [[found]] = commands(tmp_path / "page.md")
    with pytest.raises(click.UsageError, match="no-such-option"):
        check(found)
