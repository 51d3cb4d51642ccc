"""vLLM's own server, started as its command line would."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from eagle3.engine.environment import runs_on_cpu, set_caches
from eagle3.errors import InputError


def serve_arguments(model: Path, draft: Path, speculative_tokens: int) -> list[str]:
    """The arguments with which vLLM serves `model` with the exported `draft`."""
    speculative = {
        "method": "eagle3",
        "model": str(draft),
        "num_speculative_tokens": speculative_tokens,
    }
    return ["serve", str(model), "--speculative-config", json.dumps(speculative)]


def serve(model: Path, draft: Path, speculative_tokens: int, further: Sequence[str] = ()) -> None:
    """Serves until it is stopped; `further` arguments are vLLM's own.

    Raises InputError on a CPU, where vLLM does not speculate.
    """
    if runs_on_cpu():
        raise InputError("vLLM does not speculate on a CPU: run with --config=cuda128 on a GPU")
    set_caches()
    from vllm.entrypoints.cli.main import main

    sys.argv = ["vllm", *serve_arguments(model, draft, speculative_tokens), *further]
    main()
