"""A draft in training on this process: one step, one validation, its state out and in."""

from collections.abc import Mapping
from contextlib import nullcontext

import torch

from eagle3.draft.model import DraftModel
from eagle3.training.arithmetic import compute_dtype
from eagle3.training.data import BatchLoader, StepBatches
from eagle3.training.distributed import Processes
from eagle3.training.ema import RunningMean
from eagle3.training.metrics import SUMS, StepMetrics, metrics_of
from eagle3.training.optimizer import Optimizer, as_held, gathered
from eagle3.training.packing import pack
from eagle3.training.parallel import (
    LossModule,
    add_noise,
    backward,
    exchange,
    release,
    shuffle_states,
    spread,
)
from eagle3.training.plan import TrainingPlan
from eagle3.training.samples import SampleSet
from eagle3.training.schedule import rate_share
from eagle3.training.teacher import Teacher
from eagle3.training.unroll import UnrollOptions

# Names of the groups of tensors in a checkpoint.
WEIGHTS, MEAN, OPTIMIZER = "draft", "mean", "optimizer"
Tensors = dict[str, torch.Tensor]


class Trainer:
    """`draft` and `teacher` are on the device of this process."""

    def __init__(
        self, plan: TrainingPlan, draft: DraftModel, teacher: Teacher, processes: Processes
    ) -> None:
        self._plan = plan
        self._config = plan.config
        self._processes = processes
        unroll = self._config.unroll
        options = UnrollOptions(
            unroll.unroll_steps, unroll.unroll_decay, unroll.feed, compute_dtype(processes.device)
        )
        self._module = spread(
            LossModule(draft, teacher, options),
            processes,
            self._config.run.parallel,
            options.compute_dtype,
        )
        self._optimizer = Optimizer(draft, self._config.optimizer)
        decay = self._config.optimizer.ema
        self._mean = RunningMean(self._optimizer.parameters, decay) if decay else None

    def step(
        self, step: int, data: StepBatches, denominator_S: torch.Tensor, scheduled: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Step number `step` from 0; this process's sums [SUMS, S] and the gradient's norm.

        `scheduled` is the step of the plan whose learning rate it has.
        `denominator_S` is how many rows count in the batches of all processes. Nothing waits for
        the device.
        """
        denominator_S = denominator_S.to(self._processes.device, non_blocking=True)
        sums_NS = torch.zeros(SUMS, len(denominator_S), device=self._processes.device)
        each = self._plan.batches_per_step // self._processes.count
        for place, batch in enumerate(data.batches):
            data_config, seed = self._config.data, self._config.run.seed
            number = self._plan.batches_per_step * step + self._processes.rank * each + place
            if data_config.shuffle_states:
                shuffle_states(batch, seed, number)
            if data_config.noise:
                add_noise(batch, data_config.noise, seed, number)
            with exchange(self._module, last=place == each - 1):
                loss, batch_sums_NS = self._module(batch, denominator_S)
                backward(loss, self._processes)
            sums_NS = sums_NS + batch_sums_NS
        share = rate_share(self._config.schedule, scheduled, self._plan.steps)
        norm = self._optimizer.step(share)
        if self._mean is not None:
            self._mean.update()
        return sums_NS, norm

    def validate(self) -> StepMetrics:
        """The metrics of the plan's `measured`, with the weights that would be exported."""
        samples, count = self._plan.measured, self._processes.count
        packed = list(pack(range(len(samples.ids)), samples.lengths, self._plan.capacity))
        # Sharded weights are gathered by all together: who has no batch takes an empty one.
        packed += [()] * (-len(packed) % count)
        ones_S = torch.ones(self._config.unroll.unroll_steps, device=self._processes.device)
        sums_NS = torch.zeros(SUMS, len(ones_S), device=self._processes.device)
        mean = self._mean.in_place() if self._mean is not None else nullcontext()
        with mean, torch.no_grad(), self.loader(samples) as loader:
            for data in loader.steps([batch] for batch in packed[self._processes.rank :: count]):
                for batch in data.batches:
                    sums_NS = sums_NS + self._module(batch, ones_S)[1]
            release(self._module)
        return metrics_of(self._processes.sum(sums_NS))

    def loader(self, samples: SampleSet) -> BatchLoader:
        """Reads batches of `samples` for this process's device."""
        return BatchLoader(
            samples,
            self._plan.capacity,
            self._processes.device,
            unroll_steps=self._config.unroll.unroll_steps,
            readers=self._config.run.readers,
        )

    def state(self) -> dict[str, Tensors]:
        """Groups of whole tensors on the CPU of the first process, empty ones in the others.

        All processes must ask together.
        """
        keep = self._processes.is_first
        groups = {
            WEIGHTS: gathered(self._optimizer.parameters, keep=keep),
            OPTIMIZER: self._optimizer.state(keep=keep),
        }
        if self._mean is not None:
            groups[MEAN] = gathered(self._mean.means, keep=keep)
        return groups

    @torch.no_grad()
    def load_state(self, groups: Mapping[str, Tensors]) -> None:
        """Takes over what `state` returned in the first process."""
        parameters = self._optimizer.parameters
        for name, value in groups[WEIGHTS].items():
            parameters[name].copy_(as_held(value, parameters[name]))
        self._optimizer.load_state(groups[OPTIMIZER])
        if self._mean is not None:
            for name, value in groups[MEAN].items():
                self._mean.means[name].copy_(as_held(value, parameters[name]))
