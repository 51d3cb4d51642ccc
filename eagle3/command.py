"""What all commands share: one-line errors, exit codes, and where relative paths begin."""

import atexit
import contextlib
import gc
import os
import shlex
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from eagle3.errors import Eagle3Error, InputError

USAGE_ERROR = 2
INTERRUPTED = 130
TERMINATED = 143

_SHIPPED_MODELS = {"smollm2": "third_party/models/smollm2"}
_SHIPPED_DATA = {
    "smoke": "examples/smoke.jsonl",
    "heldout": "examples/heldout.jsonl",
    "smollm2-selfgen": "examples/smollm2-selfgen/dataset.json",
}
# By this file a folder is known: `bazel run` tells where files lie, and of folders nothing.
_DATASET = "dataset.json"


class Terminated(KeyboardInterrupt):
    """SIGTERM came: the command ends as it does with Ctrl-C, with an exit code of its own."""


class Command(click.Command):
    """A click command whose errors are one line on stderr, with a stack trace only with -v."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit):
            raise
        except Terminated:
            _fail("ended by SIGTERM", TERMINATED)
        except KeyboardInterrupt:
            # A second Ctrl-C must not break into the words about the first.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            raise click.Abort from None
        except Exception as error:
            if ctx.params["verbose"]:
                traceback.print_exc()
            if isinstance(error, Eagle3Error):
                _fail(str(error), error.exit_code)
            detail = " ".join(str(error).split())
            _fail(
                f"unexpected {type(error).__name__}: {detail}; -v shows where",
                Eagle3Error.exit_code,
            )

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Runs the command and exits, with click's errors cut down to one line, too."""
        extra["standalone_mode"] = False
        try:
            exit_code = super().main(*args, **extra)
        except click.ClickException as error:
            _fail(f"{error.format_message()} (--help lists the options)", USAGE_ERROR)
        except click.Abort:
            _fail("interrupted", INTERRUPTED)
        sys.exit(exit_code)


def run(command: click.Command) -> NoReturn:
    """Runs `command` as the process, and keeps its stdout for its result.

    Libraries and worker processes write what they like to descriptor 1, so that one is turned to
    stderr; what the command itself prints goes to the stdout that the process was given. SIGTERM
    raises Terminated in it.
    """
    signal.signal(signal.SIGTERM, _terminate)
    sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # Python's last look for garbage, among all that torch has made, would keep the user a second.
    atexit.register(gc.freeze)
    command.main(prog_name=command.name)


def stdout_for_result_only() -> contextlib.redirect_stdout[Any]:
    """A context in which what libraries print goes to stderr."""
    return contextlib.redirect_stdout(sys.stderr)


def user_path(path: str) -> Path:
    """`path` made absolute from the folder where the user stands.

    `bazel run` starts a command in its runfiles and names the user's folder in the environment.
    """
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), path).absolute()


def shipped_path(path: str) -> Path:
    """A file or folder that comes with the workspace; `path` is relative to its root."""
    from runfiles import Runfiles

    runfiles = Runfiles.Create()
    location = runfiles.Rlocation(f"eagle3_training/{path}") if runfiles else None
    if not location or not Path(location).exists():
        raise InputError(f"{path} is not here: start the command with `bazel run`")
    return Path(location)


def model_folder(name: str) -> Path:
    """The checkpoint that `--model` names: a shipped model, or a folder of the user's."""
    if name in _SHIPPED_MODELS:
        return shipped_path(_SHIPPED_MODELS[name])
    folder = user_path(name)
    if not folder.is_dir():
        raise InputError(
            f"no model {name}: neither a shipped model ({', '.join(_SHIPPED_MODELS)}) nor the "
            "folder of a checkpoint; models are never downloaded"
        )
    return folder


def shipped_models() -> list[Path]:
    """The checkpoints that came with this command; none where it was started without them."""
    found = []
    for path in _SHIPPED_MODELS.values():
        with contextlib.suppress(InputError):
            found.append(shipped_path(path))
    return found


def data_path(name: str) -> Path:
    """The data that `--data` names: what is shipped, or a file or folder of the user's."""
    if name not in _SHIPPED_DATA:
        return user_path(name)
    path = shipped_path(_SHIPPED_DATA[name])
    return path.parent if path.name == _DATASET else path


def next_command(target: str, *arguments: str) -> str:
    """The line to type next, on the stack that this command runs on."""
    from eagle3_stack import STACK  # written into site-packages by the build

    config = [] if STACK == "cpu" else [f"--config={STACK}"]
    return shlex.join(["tools/bazel", "run", *config, target, "--", *arguments])


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    # Once: timeout(1) sends it twice, and the second must not break into what the first began.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Terminated


def _fail(message: str, exit_code: int) -> NoReturn:
    click.echo(f"error: {message}", err=True)
    sys.exit(exit_code)
