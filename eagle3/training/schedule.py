"""The learning rate of each step."""

import math

from eagle3.training.config import ScheduleConfig


def rate_share(config: ScheduleConfig, step: float, steps: int) -> float:
    """The learning rate of step `step` (from 0) of `steps`, as a share of the highest.

    A step that is not full counts as a part of one. After the last one, nothing changes.
    """
    warmup = round(config.warmup * steps)
    if step < warmup:
        return min(1.0, (step + 1) / warmup)
    if config.schedule == "constant":
        return 1.0
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    left = 1 - progress if config.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return config.final_learning_rate + (1 - config.final_learning_rate) * left
