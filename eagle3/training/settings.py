"""From what the user says, in YAML files and flags, to the typed configuration."""

import difflib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_origin

import msgspec
import yaml

from eagle3.errors import InputError
from eagle3.training.config import GROUPS, KEYS, TrainConfig

Settings = dict[str, dict[str, Any]]


def read_settings(path: Path) -> Settings:
    """The settings in a YAML file, group by group.

    Raises InputError where it cannot be read, and for a group or key that does not exist, with
    the nearest one that does.
    """
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(settings, dict):
        raise InputError(f"{path} must have groups of keys ({', '.join(GROUPS)})")
    for group, keys in settings.items():
        if group not in GROUPS:
            raise InputError(
                f"{path}: unknown group {group}{_nearest(group, GROUPS) or _nearest(group, KEYS)}"
            )
        if not isinstance(keys, dict):
            raise InputError(f"{path}: {group} must have keys below it")
        for key, value in keys.items():
            if key not in KEYS or KEYS[key].group != group:
                raise InputError(f"{path}: unknown key {group}.{key}{_nearest(key, KEYS)}")
            if isinstance(value, bool) and get_origin(KEYS[key].kind) is Literal:
                # What is a word here, such as true, is none in YAML without quotes.
                keys[key] = str(value).lower()
    return settings


def settings_of_flags(flags: Mapping[str, Any]) -> Settings:
    """The settings that flags, by the names of their keys, stand for."""
    settings: Settings = {}
    for key, value in flags.items():
        settings.setdefault(KEYS[key].group, {})[key] = value
    return settings


def make_config(*layers: Settings) -> TrainConfig:
    """The configuration of the defaults and `layers`, of which a later one wins.

    Raises InputError for a value of the wrong type or out of range.
    """
    merged: Settings = {group: {} for group in GROUPS}
    for layer in layers:
        for group, keys in layer.items():
            merged[group] |= keys
    try:
        # Not strict: a flag is text, and YAML takes 1e-4 for text, too.
        return msgspec.convert(merged, TrainConfig, strict=False)
    except msgspec.ValidationError as error:
        what, _, where = str(error).rpartition(" - at ")
        key = where.strip("`$.")
        raise InputError(f"{key or 'the configuration'}: {(what or str(error)).lower()}") from error


def write_config(config: TrainConfig) -> str:
    """The YAML of all keys of `config`, from which `read_settings` makes it again."""
    return yaml.safe_dump(asdict(config), sort_keys=False)


def _nearest(name: Any, known: Any) -> str:
    found = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    if not found:
        return ""
    full = f"{KEYS[found[0]].group}.{found[0]}" if known is KEYS else found[0]
    return f"; did you mean {full}?"
