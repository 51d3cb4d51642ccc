"""The flags of the command, made from the configuration, so that there is one list of them."""

from collections.abc import Callable
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import click

from eagle3.training.config import KEYS, Key

_METAVARS = {int: "N", float: "X", str: "NAME"}


def config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives `command` a flag for each key; one that was not given arrives as None."""
    for key in reversed(KEYS.values()):
        command = _option(key)(command)
    return command


def _option(key: Key) -> Callable[..., Any]:
    flag = key.name.replace("_", "-")
    shown = key.help.shown or str(key.default)
    if key.kind is bool:
        return click.option(
            f"--{flag}/--no-{flag}",
            key.name,
            default=None,
            help=key.help.words,
            show_default=flag if key.default else f"no-{flag}",
        )
    if get_origin(key.kind) is Literal:
        kind, metavar = click.Choice(get_args(key.kind)), None
    else:
        plain = next(kind for kind in get_args(key.kind) or (key.kind,) if kind is not NoneType)
        # Text, because ranges are the configuration's to check.
        kind, metavar = click.STRING, _METAVARS[plain]
    return click.option(
        f"--{flag}", key.name, type=kind, metavar=metavar, help=key.help.words, show_default=shown
    )
