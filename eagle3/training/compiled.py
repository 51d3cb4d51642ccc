"""Which functions are compiled: those that are given tensors on a GPU."""

import warnings
from collections.abc import Callable
from functools import cache

import torch


def compiled_for[**P, R](device: torch.device, function: Callable[P, R]) -> Callable[P, R]:
    """`function` itself on the CPU; elsewhere compiled, once, for the shapes that it meets."""
    return function if device.type == "cpu" else _compiled(function)


@cache
def _compiled[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    # Of each softmax that it splits, it asks users to tell PyTorch.
    warnings.filterwarnings("ignore", module=r"torch\._inductor")
    return torch.compile(function, fullgraph=True, dynamic=False)
