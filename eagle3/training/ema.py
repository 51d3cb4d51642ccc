"""A running mean of the weights, which is often a better draft than the last ones."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn


class RunningMean:
    """mean <- decay * mean + (1 - decay) * weights, in fp32, from the first weights on."""

    def __init__(self, parameters: Mapping[str, torch.Tensor], decay: float) -> None:
        self._parameters = parameters
        self._average = get_ema_multi_avg_fn(decay)
        self.means = {name: value.detach().clone() for name, value in parameters.items()}

    @torch.no_grad()
    def update(self) -> None:
        self._average([*self.means.values()], [*self._parameters.values()], 0)

    @contextmanager
    def in_place(self) -> Generator[None]:
        """Has the mean where the weights are, for as long as the context lasts."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, parameter in self._parameters.items():
            weights = parameter.detach().clone()
            parameter.copy_(self.means[name])
            self.means[name].copy_(weights)
