"""How the target chooses its tokens: as it is configured, unless the user says otherwise."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3.chat.chat_template import ChatTemplate
from eagle3.engine.generation import Sampling
from eagle3.errors import InputError

# What vLLM reads of generation_config.json, and takes where it is silent; a server does the same.
_DEFAULTS = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}


@dataclass(frozen=True)
class SamplingOptions:
    """What the user gave: None leaves it to generation_config.json; `stop` are more stop tokens."""

    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()


def read_sampling(model: Path, options: SamplingOptions, template: ChatTemplate) -> Sampling:
    """The sampling that `model` is configured for, with `options` in place of some of it.

    Raises InputError where the configuration is damaged, or `stop` is not one token.
    """
    values: dict[str, Any] = {**_DEFAULTS, **_configured(model)}
    for name in ("temperature", "top_p"):
        if (given := getattr(options, name)) is not None:
            values[name] = given
    stops = template.end_of_turn_ids.union(_stop_id(text, template) for text in options.stop)
    return Sampling(stop_ids=tuple(sorted(stops)), **values)


def _configured(model: Path) -> dict[str, Any]:
    path = model / "generation_config.json"
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: type(default)(found[name])
            for name, default in _DEFAULTS.items()
            if found.get(name) is not None
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged: {error}") from error


def _stop_id(text: str, template: ChatTemplate) -> int:
    ids = template.encode(text)
    if len(ids) != 1:
        # Text that ended within a token would leave an answer that the target never ends so.
        raise InputError(f"--stop {text!r} is {len(ids)} tokens of the target; give a single one")
    return ids[0]
