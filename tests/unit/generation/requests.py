"""Requests, rules and speeches for tests of what the target writes."""

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eagle3.chat.chat_template import load_chat_template
from eagle3.chat.serving import Served
from eagle3.engine.generation import Sampling
from eagle3.generation.dialogue import DialogueRules
from eagle3.generation.request import GenerationRequest
from eagle3.generation.sampling import SamplingOptions
from eagle3.preparation.request import PreparationRequest
from tests.unit.fake_generator import Speech
from tests.unit.tiny_target import make_target

DATE = datetime.date(2026, 1, 1)


def make_rules(folder: Path, **changes: Any) -> DialogueRules:
    template = load_chat_template(make_target(folder / "target"))
    stop_ids = tuple(sorted(template.end_of_turn_ids))
    rules: dict[str, Any] = {
        "served": Served(template, thinking=True),
        "sampling": Sampling(0.5, 1.0, 0, 0.0, 1.0, stop_ids),
        "max_tokens": 64,
        "max_model_len": 512,
        "on_degenerate": "drop",
        "seed": 0,
    }
    return DialogueRules(**{**rules, **changes})


def make_request(
    folder: Path, data: Path | None = None, *, out: str = "out", **options: Any
) -> GenerationRequest:
    if not (folder / "target").exists():
        make_target(folder / "target")
    own = {name: options.pop(name) for name in list(options) if name in _PREPARATION}
    preparation = PreparationRequest(
        data, folder / "target", folder / out, max_model_len=512, date=DATE, **own
    )
    usual: dict[str, Any] = {"max_tokens": 64, "on_degenerate": "drop"}
    return GenerationRequest(preparation, SamplingOptions(), **{**usual, **options})


_PREPARATION = {"seed", "limit", "history", "show", "validation_share", "form", "reasoning"}


def speech_of(target: Path, *texts: str) -> Speech:
    """Says one of `texts`, chosen by the seed; `{}` in it becomes a number that follows from it."""
    template = load_chat_template(target)

    def speak(prompt: list[int], seed: int) -> Sequence[int]:
        return template.encode(texts[seed % len(texts)].format(seed % 9973))

    return speak


def write_questions(path: Path, count: int) -> Path:
    rows = [
        {"messages": [{"role": "user", "content": f"What is {number}, and who asks?"}]}
        for number in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
