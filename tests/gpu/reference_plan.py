"""What the reference run runs, and whether memory and disk are enough for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from eagle3.benchmark.extraction.workload import Workload
from eagle3.checks.checkpoint_files import CheckpointFiles
from eagle3.checks.machine import Machine, read_machine
from eagle3.checks.memory import check_memory
from eagle3.checks.situation import Situation
from eagle3.engine.options import EngineOptions
from eagle3.errors import InputError
from eagle3.extraction.disk import plan_disk
from eagle3.extraction.request import ExtractionRequest
from eagle3.extraction.size import readable_size
from eagle3.extraction.stack import running_stack
from eagle3.progress import Progress
from eagle3.store.manifest import DatasetIdentity, Manifest, TargetIdentity
from eagle3.store.sample import Sample, dataset_digest
from tests.gpu.reference_target import weight_bytes

SHARD_BYTES = 1024**3


@dataclass(frozen=True)
class Run:
    """What is run where; `lengths` are those of the samples, each with `tokens` tokens in all.

    Each is run `passes` times.
    """

    options: EngineOptions
    config: dict[str, Any]
    tokens: int
    lengths: tuple[int, ...]
    passes: int
    scratch: Path
    progress: Progress

    def workload(self, length: int) -> Workload:
        return Workload(
            self.options,
            # vLLM's random weights are the same on each rank, so that a token has the embedding of
            # another one in the next rank's part of the vocabulary; extraction refuses equal rows.
            self.config["vocab_size"] // self.options.tensor_parallel,
            self.config["hidden_size"],
            prompts=-(-self.tokens // length),
            length=length,
            passes=self.passes,
            scratch=self.scratch,
        )

    def samples(self, length: int) -> list[Sample]:
        prompts = self.workload(length).token_ids()
        return [Sample(tuple(prompt_T), (1,) * length) for prompt_T in prompts]

    def manifest(self, samples: Sequence[Sample]) -> Manifest:
        tokens = sum(len(sample.input_ids) for sample in samples)
        return Manifest(
            target=TargetIdentity(str(self.options.model), "random", "random"),
            tokenizer_sha256="",
            dataset=DatasetIdentity(len(samples), tokens, dataset_digest(list(samples))),
            stack=running_stack(),
            capture_points=self.options.capture_points,
            hidden_size=self.config["hidden_size"],
        )


class SituationWithoutWeights(Situation):
    """The checks' view of a target that has no files: its weights are counted instead."""

    def __init__(self, options: EngineOptions, config: dict[str, Any], machine: Machine) -> None:
        request = ExtractionRequest(
            model=options.model,
            data=options.model,
            out=options.model,
            tensor_parallel=options.tensor_parallel,
            max_model_len=options.max_model_len,
            max_tokens_per_step=options.max_tokens_per_step,
            gpu_memory_utilization=options.gpu_memory_utilization,
            ring_bytes=options.ring_bytes,
        )
        super().__init__(request, machine)
        self._weights = weight_bytes(config)

    @cached_property
    def checkpoint(self) -> CheckpointFiles:
        return CheckpointFiles((), 0, self._weights, {}, {}, ())


def plan(run: Run) -> list[str]:
    """Lines about memory and disk. Raises InputError or StoreError where either is too small."""
    lines = []
    situation = SituationWithoutWeights(run.options, run.config, read_machine())
    for finding in check_memory(situation):
        if finding.verdict == "fail":
            raise InputError(str(finding))
        lines.append(str(finding))
    # Two stores at a time: the one of the first length, and another, which is removed.
    samples = [sample for length in (run.lengths[0],) * 2 for sample in run.samples(length)]
    disk = plan_disk(samples, run.manifest(samples), run.scratch, SHARD_BYTES, begun=False)
    lines.append(
        f"disk: {readable_size(disk.needed)} of states, {readable_size(disk.free)} free in "
        f"{run.scratch}"
    )
    return lines
