"""Whether the engine takes what it is asked for."""

from collections.abc import Iterator

from eagle3.checks.finding import Finding
from eagle3.checks.situation import Situation
from eagle3.engine.options import check_options


def check_engine_options(situation: Situation) -> Iterator[Finding]:
    """Lengths, ring, and leave to run code that comes with the target. Raises InputError."""
    options = situation.engine_options
    check_options(options, situation.architecture)
    steps = f"{options.max_tokens_per_step:,} tokens a step"
    yield Finding("options", "ok", f"{steps}, samples of up to {options.max_model_len:,} tokens")
