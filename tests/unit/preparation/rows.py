"""Rows of every kind, good and bad, for tests of the whole preparation."""

import json
from pathlib import Path
from typing import Any


def conversation(number: int, turns: int = 1) -> dict[str, Any]:
    messages = []
    for turn in range(turns):
        messages += [
            {"role": "user", "content": f"What is {number} and {turn}?"},
            {"role": "assistant", "content": f"It is {number + turn}."},
        ]
    return {"messages": messages}


GOOD = [conversation(number, 1 + number % 3) for number in range(40)]
REPEATED = [GOOD[3], GOOD[3], GOOD[7]]
SKIPPED = [{"prompt": "No answer."}, {"messages": []}, conversation(7, 300)]
WRONG: list[Any] = [
    [1, 2],
    {"text": "x"},
    {"messages": [{"role": "user", "content": " "}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
    {"input_ids": [1, 2]},
    {"input_ids": [1, 2], "loss_mask": [0, 0]},
    {"input_ids": [1, 100000], "loss_mask": [0, 1]},
]
TOKENS = [{"input_ids": [5, 6, 7], "loss_mask": [0, 1, 1]}]


def write(path: Path, rows: list[Any], *more: str) -> Path:
    lines = [*(json.dumps(row) for row in rows), *more]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_all(path: Path) -> Path:
    """Rows of every kind, one of them no JSON at all."""
    return write(path, [*GOOD, *REPEATED, *SKIPPED, *WRONG, *TOKENS], "not JSON")
