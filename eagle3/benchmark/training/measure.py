"""The time and the memory of a training step."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_WARM_UP = 3


@dataclass(frozen=True)
class Measurement:
    """`peak_gib` is None on a CPU; `compile_s` is what the first step took beyond a later one."""

    tokens_per_s: float
    step_ms: float
    peak_gib: float | None
    compile_s: float
    loss: float


def measure(
    step: Callable[[int], torch.Tensor],
    tokens: int,
    device: torch.device,
    rounds: int,
    *,
    refuse_recompilation: bool = False,
) -> Measurement:
    """Times `step`, which is given its number and returns its loss, over `rounds` steps.

    `refuse_recompilation`: a step after the first that compiles anything anew is an error.
    """
    cuda = device.type == "cuda"
    began = time.perf_counter()
    step(0).item()
    first_s = time.perf_counter() - began
    stance = "fail_on_recompile" if refuse_recompilation else "default"
    with torch.compiler.set_stance(stance):
        for number in range(_WARM_UP):
            step(1 + number).item()
        if cuda:
            torch.cuda.reset_peak_memory_stats(device)
        began = time.perf_counter()
        losses = [step(1 + _WARM_UP + number) for number in range(rounds)]
        last_loss = losses[-1].item()
        step_s = (time.perf_counter() - began) / rounds
    return Measurement(
        tokens_per_s=tokens / step_s,
        step_ms=step_s * 1e3,
        peak_gib=torch.cuda.max_memory_allocated(device) / 2**30 if cuda else None,
        compile_s=max(0.0, first_s - step_s),
        loss=last_loss,
    )
