"""A running target that puts the hidden states of token sequences where they belong on disk."""

import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Self

import torch

from eagle3.engine.architecture import TargetArchitecture, read_architecture
from eagle3.engine.options import EngineOptions, check_options
from eagle3.engine.prefill import Prefill, Prompt
from eagle3.engine.surroundings import WORKER_LOG, make_folder, surroundings
from eagle3.engine.worker_log import one_line_cause
from eagle3.errors import EngineError, InputError
from eagle3.store.encoding import decode
from eagle3.store.row_format import width

if TYPE_CHECKING:
    from eagle3.engine.scheduling import StepScheduler
    from eagle3.engine.workers import Workers


class Engine:
    """Starts the target on construction; a context manager that stops it.

    The workers are processes of their own, so a script that builds an Engine needs the usual
    `if __name__ == "__main__"`. One thread at a time may use an Engine. Construction raises
    InputError for options or a target that cannot work, EngineError where the target fails to
    start.
    """

    architecture: TargetArchitecture

    def __init__(self, options: EngineOptions) -> None:
        self.options = options
        self.architecture = read_architecture(options.model)
        check_options(options, self.architecture)
        self._row_bytes = len(options.capture_points) * width(
            options.states_dtype, self.architecture.hidden_size
        )
        self._numbers = itertools.count()
        self._folder = make_folder()
        self._workers: Workers | None = None
        self._scheduler: StepScheduler | None = None
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        name = self.options.model.name
        with surroundings(self.options, self.architecture, self._folder):
            try:
                self._start_target()
            except ValueError as error:
                raise InputError(
                    f"vLLM refuses the target {name}: {one_line_cause(error)}"
                ) from error
            except Exception as error:
                cause = one_line_cause(error, self._folder / WORKER_LOG)
                raise EngineError(f"the target {name} did not start: {cause}") from error

    def _start_target(self) -> None:
        from eagle3.engine.capture_worker import CaptureSettings
        from eagle3.engine.configuration import configure
        from eagle3.engine.scheduling import StepScheduler
        from eagle3.engine.workers import Workers

        options = self.options
        config = configure(options, self.architecture)
        self._workers = Workers(config)
        settings = CaptureSettings(
            capture_points=options.capture_points,
            hidden_size=self.architecture.hidden_size,
            most_rows=options.max_tokens_per_step,
            writing_ranks=options.writing_ranks or options.tensor_parallel,
            ring_bytes=options.ring_bytes,
            writer_threads=options.writer_threads,
            states_dtype=options.states_dtype,
        )
        self._workers.call("start_capture", settings, timeout_s=options.step_timeout_s)
        self._scheduler = StepScheduler(config, self._workers.cache)

    def extract(self, token_ids: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        """Runs the prompts and returns their hidden_states_TLH, in the order of the prompts.

        Each is bfloat16 on the CPU; L is in the order of `options.capture_points`. The states take
        the way of `run`, to a temporary file and back, and must fit into memory. A prompt that
        cannot run raises InputError by its index before any is run; errors are those of `run`.
        """
        self._running()
        for index, prompt_T in enumerate(token_ids):
            self._check_prompt(f"prompt {index}", prompt_T)
        lengths = [len(prompt_T) for prompt_T in token_ids]
        starts = list(itertools.accumulate(lengths, initial=0))
        with tempfile.NamedTemporaryFile(dir=self._folder) as file:
            prompts = [
                Prompt(str(index), f"prompt {index}", prompt_T, file.name, start * self._row_bytes)
                for index, (prompt_T, start) in enumerate(zip(token_ids, starts, strict=False))
            ]
            whole = [prompt.id for group in self.run(prompts) for prompt in group]
            assert len(whole) == len(prompts)
            content = bytearray(file.read())
        if not content:
            return []
        rows = torch.frombuffer(content, dtype=torch.bfloat16)
        rows = rows.view(len(rows) * 2 // self._row_bytes, len(self.options.capture_points), -1)
        return list(decode(rows, self.options.states_dtype).split(lengths))

    def run(self, prompts: Iterable[Prompt]) -> Iterator[list[Prompt]]:
        """Runs the prompts, and gives those of which every row is in its file, in any order.

        Prompts are taken from the iterator as steps need them. Once the iterator that is returned
        has ended or was closed, nothing more is written. Raises InputError for a prompt that cannot
        run, StoreError where rows cannot be written, and EngineError, naming the prompts of the
        step, where the target fails; after one with a single rank, the next run can still be good.
        """
        workers, scheduler = self._running()
        prefill = Prefill(workers, scheduler, self._row_bytes, self.options.step_timeout_s)
        try:
            yield from prefill.run(self._numbered(prompts))
        finally:
            if not prefill.end():
                self.close()

    def _numbered(self, prompts: Iterable[Prompt]) -> Iterator[tuple[str, Prompt]]:
        """Prompts with names of their requests, of which no two are ever equal."""
        for prompt in prompts:
            self._check_prompt(prompt.name, prompt.token_ids)
            yield f"request-{next(self._numbers)}", prompt

    def _check_prompt(self, name: str, prompt_T: Sequence[int]) -> None:
        longest, vocab_size = self.options.max_model_len, self.architecture.vocab_size
        if not prompt_T:
            raise InputError(f"{name} has no tokens")
        if len(prompt_T) > longest:
            raise InputError(
                f"{name} has {len(prompt_T):,} tokens, more than the {longest:,} of "
                "max_model_len; raise it or cut the prompt with its loss mask"
            )
        if min(prompt_T) < 0 or max(prompt_T) >= vocab_size:
            raise InputError(f"{name} has a token id outside the vocabulary of {vocab_size:,}")

    def _running(self) -> "tuple[Workers, StepScheduler]":
        if self._workers is None or self._scheduler is None:
            raise EngineError("the engine is closed")
        return self._workers, self._scheduler

    def close(self) -> None:
        """Stops the workers and waits until they are gone; a second call does nothing."""
        if self._workers is not None:
            self._workers.close()
            self._workers = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
