"""Requests as the command makes them, with what a test does not care about filled in."""

import dataclasses
from pathlib import Path
from typing import Any

from eagle3.extraction.request import ExtractionRequest
from eagle3.store.part import Part


def make_request(model: Path, data: Path, out: Path, **changes: Any) -> ExtractionRequest:
    """The command's defaults, but for the paths and `changes`."""
    request = ExtractionRequest(
        model=model,
        data=data,
        out=out,
        layers=None,
        layer_convention="after-layer",
        tensor_parallel=1,
        max_model_len=None,
        max_tokens_per_step=16,
        gpu_memory_utilization=0.8,
        limit=None,
        truncate=False,
        seed=0,
        trust_remote_code=False,
        verbose=False,
        part=Part(),
        shard_bytes=2**30,
        on_bad="fail",
        command="extract",
    )
    return dataclasses.replace(request, **changes)
