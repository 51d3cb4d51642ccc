"""Requests as the command makes them, with what a test does not care about filled in."""

from pathlib import Path
from typing import Any

from eagle3.extraction.request import ExtractionRequest


def make_request(model: Path, data: Path, out: Path, **changes: Any) -> ExtractionRequest:
    """The command's defaults, but for the paths, small steps and `changes`."""
    options: dict[str, Any] = {"max_tokens_per_step": 16, "command": "extract"} | changes
    return ExtractionRequest(model, data, out, **options)
