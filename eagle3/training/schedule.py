"""The learning rate of each step."""

import math

from eagle3.training.config import ScheduleConfig


def rate_share(config: ScheduleConfig, step: int, steps: int) -> float:
    """The learning rate of step `step` (from 0) of `steps`, as a share of the highest."""
    warmup = round(config.warmup * steps)
    if step < warmup:
        return (step + 1) / warmup
    if config.schedule == "constant":
        return 1.0
    progress = (step - warmup) / max(1, steps - warmup)
    left = 1 - progress if config.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return config.final_learning_rate + (1 - config.final_learning_rate) * left
