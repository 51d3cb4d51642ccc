"""The loop: step, log, validate, save, until the end or a signal."""

import itertools
import math
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from eagle3.errors import Eagle3Error, InputError
from eagle3.training.arithmetic import flops_per_token, peak_flops
from eagle3.training.checkpoint import RunState, save_checkpoint
from eagle3.training.data import BatchLoader, StepBatches
from eagle3.training.distributed import Processes
from eagle3.training.following import Following, StalledError, StoppedWaitingError
from eagle3.training.log import Log, Record
from eagle3.training.metrics import metrics_of
from eagle3.training.optimizer import whole
from eagle3.training.order import EpochStart
from eagle3.training.packing import Packed
from eagle3.training.plan import TrainingPlan, batches_from
from eagle3.training.schedule import rate_share
from eagle3.training.stop import StopRequest
from eagle3.training.trainer import Trainer


class Loop:
    """Trains from `state` to the plan's last step, on this process as on all others.

    `log` is None in all processes but the first. With `following`, the samples are its, and the
    last step is the one after which no more come.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        trainer: Trainer,
        state: RunState,
        log: Log | None,
        processes: Processes,
        following: Following | None = None,
    ) -> None:
        self._plan = plan
        self._trainer = trainer
        self._state = state
        self._log = log
        self._processes = processes
        self._following = following
        # What the newest checkpoint holds.
        self._saved = state if state.step else None
        # Of the steps that are read ahead, too.
        self._epochs = deque([state.epoch])
        self._norm = torch.zeros(())
        self._last_scheduled = 0.0
        self._has_stepped = False
        self._meter = _Meter(plan, processes)

    def run(self) -> None:
        """Ends after the last step, validated and saved.

        A signal ends it earlier, with a checkpoint of that moment (see stop.py). Raises
        Eagle3Error where the loss is not finite, InputError where memory does not suffice, and
        StalledError, with a checkpoint, where samples do not come.
        """
        try:
            self._run()
        except torch.OutOfMemoryError:
            raise InputError(
                f"a batch of {self._plan.capacity:,} tokens does not fit into the GPU's memory: "
                f"raise --batches-per-step (now {self._plan.batches_per_step}), or lower "
                "--tokens-per-step, --draft-vocab or --unroll-steps"
            ) from None

    def _run(self) -> None:
        if self._state.step == 0 and self._validation_is_due:
            with self._compiling("before the first step"):
                self._validate(0.0)
        samples = self._following.samples if self._following else self._plan.training
        with StopRequest() as stop, self._trainer.loader(samples) as loader:
            self._meter.restart(loader.waited)
            try:
                for data in loader.steps(self._own_batches(stop)):
                    if data is None:
                        self._save(loader.waited)
                        self._meter.restart(loader.waited)
                    else:
                        self._step(data, loader, stop)
            except StalledError:
                self._save(loader.waited)
                raise
            except StoppedWaitingError:
                self._stop(loader, stop)
            # A checkpoint of this step may be there without: waiting for samples ended in one.
            if self._validation_is_due:
                self._validate(loader.waited)
            self._save(loader.waited)

    @property
    def _validation_is_due(self) -> bool:
        return bool(self._plan.validation.ids) and self._state.acceptance is None

    def _step(self, data: StepBatches, loader: BatchLoader, stop: StopRequest) -> None:
        """One step, and what is due after it."""
        # One exchange a step between the hosts tells each what it must know of the others.
        told = torch.tensor([data.tokens, stop.heard is not None])
        told = self._processes.sum(torch.cat([data.counted_S, told]))
        counted_S, (tokens, stopping) = told[:-2], told[-2:].tolist()
        if stopping:
            self._stop(loader, stop)
        self._last_scheduled = self._scheduled()
        self._meter.add(self._train(data, counted_S), tokens)
        step, seen = self._state.step + 1, self._state.tokens + tokens
        epoch = self._epoch(self._plan.batches_per_step * step)
        self._state = replace(self._state, step=step, acceptance=None, tokens=seen, epoch=epoch)
        run = self._plan.config.run
        if self._state.step % run.log_every == 0:
            self._write(loader.waited)
        if self._state.step % run.checkpoint_every == 0:
            began = time.monotonic()
            self._validate(loader.waited)
            self._save(loader.waited)
            self._meter.pause(time.monotonic() - began)
            self._meter.restart(loader.waited)

    def _train(self, data: StepBatches, counted_S: torch.Tensor) -> torch.Tensor:
        """The trainer's sums [SUMS, S] of a step."""
        with self._first_step():
            sums_NS, self._norm = self._trainer.step(
                self._state.step, data, counted_S, self._last_scheduled
            )
        return sums_NS

    @contextmanager
    def _first_step(self) -> Generator[None]:
        """On a GPU the host compiles the first step, which is no part of any rate."""
        device = self._processes.device
        if self._has_stepped or device.type == "cpu":
            yield
            return
        self._has_stepped = True
        began = time.monotonic()
        with self._compiling("the first step"):
            yield
            self._meter.leave_out(time.monotonic() - began)
            # What the GPU itself takes for the step does count.
            torch.cuda.synchronize(device)

    @contextmanager
    def _compiling(self, what: str) -> Generator[None]:
        """Says on a GPU why `what` takes its time."""
        if self._log is None or self._processes.device.type == "cpu":
            yield
            return
        with self._log.waiting(f"compiling for the GPU, {what}"):
            yield

    def _scheduled(self) -> float:
        """The step of the plan whose learning rate the coming step has."""
        if self._following is None:
            return self._state.step
        # How many steps there will be is not known, because not all of them are full.
        return self._state.tokens / self._plan.config.data.tokens_per_step

    def _stop(self, loader: BatchLoader, stop: StopRequest) -> None:
        self._save(loader.waited)
        stop.end(self._state.step)

    def _own_batches(self, stop: StopRequest) -> Iterator[tuple[Packed, ...] | None]:
        """The batches that this process takes of each step that is left."""
        size = self._plan.batches_per_step
        each = size // self._processes.count
        begin = each * self._processes.rank
        for step in self._steps(stop):
            yield step and step[begin : begin + each]

    def _steps(self, stop: StopRequest) -> Iterator[tuple[Packed, ...] | None]:
        """All batches of each step that is left."""
        size, first = self._plan.batches_per_step, self._state.step
        left = self._plan.steps - first
        if self._following is None:
            with self._reminding(f"packing up to step {first:,}"):
                stream = batches_from(
                    self._plan, size * first, self._state.epoch, self._epochs.append
                )
            yield from itertools.islice(itertools.batched(stream, size, strict=False), left)
            return
        for step in self._following.steps(first, stop):
            if self._plan.config.schedule.max_steps is not None and left == 0:
                return
            left -= step is not None
            yield step

    def _epoch(self, batches: int) -> EpochStart:
        """The last epoch that begins within the run's first `batches`, as far as is known."""
        while len(self._epochs) > 1 and self._epochs[1].batches <= batches:
            self._epochs.popleft()
        return self._epochs[0]

    def _write_rest(self, waited: float) -> None:
        if self._meter.has_steps:
            self._write(waited)

    def _write(self, waited: float) -> None:
        config, step = self._plan.config, self._state.step
        sums_NS, rates = self._processes.sum(self._meter.sums_NS), self._meter.take(waited)
        metrics = metrics_of(sums_NS)
        loss = metrics.total_loss(config.unroll.unroll_decay)
        gradient_norm = whole(self._norm).item()
        if not math.isfinite(loss) or not math.isfinite(gradient_norm):
            raise Eagle3Error(
                f"the loss is {loss} at step {step:,}, its gradient's norm {gradient_norm}: lower "
                "--learning-rate, and begin again with another --out"
            )
        if self._log is not None:
            share = rate_share(config.schedule, self._last_scheduled, self._plan.steps)
            record = Record(
                kind="train",
                step=step,
                tokens=self._state.tokens,
                loss=loss,
                metrics=metrics,
                learning_rate=config.optimizer.learning_rate * share,
                gradient_norm=gradient_norm,
                **rates,
            )
            self._log.write(record, self._meter.seconds_left(step))

    def _validate(self, waited: float) -> None:
        """Writes what validation says, and before it what the steps up to here have said."""
        self._write_rest(waited)
        if not self._plan.validation.ids:
            return
        with self._reminding("validating"):
            metrics = self._trainer.validate()
        self._state = replace(self._state, acceptance=metrics.acceptance_length)
        if self._log is not None:
            loss = metrics.total_loss(self._plan.config.unroll.unroll_decay)
            state = self._state
            self._log.write(Record("validation", state.step, state.tokens, loss, metrics))

    def _save(self, waited: float) -> None:
        """Saves what is new, its metrics first, and lets go of the samples behind it."""
        self._write_rest(waited)
        if self._saved != self._state:
            with self._reminding(f"saving step {self._state.step:,}"):
                run, groups = self._plan.config.run, self._trainer.state()
                if self._processes.is_first:
                    save_checkpoint(Path(run.out), self._state, groups, run.keep_checkpoints)
                self._processes.wait()
            self._saved = self._state
        if self._following:
            self._following.let_go(self._state.step)

    def _reminding(self, what: str) -> AbstractContextManager[None]:
        return nullcontext() if self._log is None else self._log.reminding(what)


class _Meter:
    """Sums and rates between two records; what validations and checkpoints take does not count.

    It counts in the time that is left.
    """

    def __init__(self, plan: TrainingPlan, processes: Processes) -> None:
        peak = peak_flops(processes.device)
        flops = flops_per_token(
            plan.draft, plan.config.unroll.unroll_steps, train_head=plan.config.draft.train_head
        )
        self._last_step = plan.steps
        self._checkpoint_every = plan.config.run.checkpoint_every
        self._pause_s = 0.0
        self._mfu_of_rate = flops / (peak * processes.count) if peak else None
        self.sums_NS = torch.zeros(())
        self._seconds = 0.0  # of all steps
        self._steps = 0
        self._unwritten = 0
        self.restart(0.0)

    def restart(self, waited: float) -> None:
        """Lets the clock begin now. `waited` is what the loader has waited in all."""
        self._began = time.monotonic()
        self._waited = waited
        self._tokens = 0
        self._steps_since = 0

    def leave_out(self, seconds: float) -> None:
        """Lets so much of the time since the last record not count."""
        self._began += seconds

    def pause(self, seconds: float) -> None:
        """Notes how long the last validation and its checkpoint took."""
        self._pause_s = seconds

    def add(self, sums_NS: torch.Tensor, tokens: int) -> None:
        self.sums_NS = sums_NS + self.sums_NS.to(sums_NS)
        self._tokens += tokens
        self._steps_since += 1
        self._unwritten += 1

    @property
    def has_steps(self) -> bool:
        """Whether there are steps that no record has."""
        return self._unwritten > 0

    def take(self, waited: float) -> dict[str, float | None]:
        """Rates since the last call or restart, as a record has them; begins anew."""
        seconds = time.monotonic() - self._began
        rate = self._tokens / seconds
        rates = {
            "tokens_per_s": rate,
            "mfu": self._mfu_of_rate and self._mfu_of_rate * rate,
            "waited": (waited - self._waited) / seconds,
        }
        self._seconds += seconds
        self._steps += self._steps_since
        self.sums_NS = torch.zeros(())
        self._unwritten = 0
        self.restart(waited)
        return rates

    def seconds_left(self, step: int) -> float:
        """After step number `step`, but before the pause that may follow it."""
        # More steps than were planned may come where a store is followed.
        last, every = max(step, self._last_step), self._checkpoint_every
        pauses = -(-last // every) - (step - 1) // every
        return (last - step) * self._seconds / self._steps + pauses * self._pause_s
