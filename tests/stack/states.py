"""Writes the hidden states of a few prompts to a file, with whatever stack runs it.

states.py MODEL FILE
"""

import sys
from pathlib import Path

from safetensors.torch import save_file

from eagle3.engine.engine import Engine
from eagle3.engine.options import EngineOptions

_PROMPTS = [list(range(1000, 1000 + length)) for length in (1, 7, 64, 300)]
_CAPTURE_POINTS = (0, 2, 15, 27, 30)


def main() -> None:
    model, file = map(Path, sys.argv[1:])
    options = EngineOptions(model, _CAPTURE_POINTS, max_model_len=512, max_tokens_per_step=256)
    with Engine(options) as engine:
        states = engine.extract(_PROMPTS)
    save_file({str(i): hidden_states_TLH for i, hidden_states_TLH in enumerate(states)}, file)


if __name__ == "__main__":
    main()
