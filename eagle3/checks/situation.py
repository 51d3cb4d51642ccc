"""What the checks look at: what is asked for, and the machine; the rest is read when needed."""

import json
from functools import cached_property
from typing import Any

from eagle3.checks.checkpoint_files import CheckpointFiles, read_checkpoint_files
from eagle3.checks.machine import Machine
from eagle3.engine.architecture import TargetArchitecture, read_architecture
from eagle3.engine.options import EngineOptions
from eagle3.errors import Eagle3Error
from eagle3.extraction.plan import (
    ExtractionPlan,
    choose_capture_points,
    choose_max_model_len,
    plan_extraction,
)
from eagle3.extraction.request import ExtractionRequest


class Situation:
    """`request` on `machine`. A property raises InputError or StoreError where it cannot be had.

    `plan` is made where it is not given; it reads all of the data.
    """

    def __init__(
        self, request: ExtractionRequest, machine: Machine, plan: ExtractionPlan | None = None
    ) -> None:
        self.request = request
        self.machine = machine
        self._given_plan = plan

    @property
    def plan(self) -> ExtractionPlan:
        if isinstance(self._plan_or_error, Eagle3Error):
            raise self._plan_or_error
        return self._plan_or_error

    @cached_property
    def architecture(self) -> TargetArchitecture:
        return read_architecture(self.request.model)

    @cached_property
    def capture_points(self) -> tuple[int, ...]:
        return choose_capture_points(self.request, self.architecture)

    @cached_property
    def max_model_len(self) -> int:
        return choose_max_model_len(self.request, self.architecture)

    @cached_property
    def engine_options(self) -> EngineOptions:
        return self.request.engine_options(self.capture_points, self.max_model_len)

    @cached_property
    def checkpoint(self) -> CheckpointFiles:
        return read_checkpoint_files(self.request.model)

    @cached_property
    def config(self) -> dict[str, Any]:
        """All of config.json, with what it says of a multimodal target's language model on top."""
        return {**self._whole_config, **(self._whole_config.get("text_config") or {})}

    @cached_property
    def architectures(self) -> tuple[str, ...]:
        """What vLLM calls the target: the whole of it, not its language model."""
        return tuple(self._whole_config.get("architectures") or ())

    @cached_property
    def quantization(self) -> dict[str, Any]:
        """`quantization_config`, empty for a target that is not quantised."""
        return self.config.get("quantization_config") or {}

    @cached_property
    def _whole_config(self) -> dict[str, Any]:
        _ = self.architecture  # refuses what is no configuration
        return json.loads((self.request.model / "config.json").read_text(encoding="utf-8"))

    @cached_property
    def _plan_or_error(self) -> ExtractionPlan | Eagle3Error:
        # Reading the data again for every check that needs it would take its time again.
        try:
            return self._given_plan or plan_extraction(self.request)
        except Eagle3Error as error:
            return error
