"""Figures as a table, a line of JSON, and a row of docs/scoreboard.md."""

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eagle3.benchmark.extraction.measure import Figures
from eagle3.errors import StoreError

_NAMES = {
    "plain": "plain prefill",
    "old": "patched generator, a file a sample",
    "ours": "extract",
    "unchecked": "extract without detectors",
}
_COLUMNS = (
    "date",
    "commit",
    "hardware",
    "target",
    "prompts",
    "tokens a step",
    "plain tokens/s",
    "old tokens/s",
    "extract tokens/s",
    "of plain",
    "MB/s",
    "memory",
)
_HEAD = f"""# Scoreboard

Rows of `bazel run //eagle3:bench_extract`; [extract](extract.md#how-fast) says what they mean.

| {" | ".join(_COLUMNS)} |
|{"---|" * len(_COLUMNS)}
"""


def as_json(figures: Figures) -> str:
    """One line; a figure of a road that was left out is null."""
    return json.dumps(
        {
            "plain_tokens_per_s": _rounded(figures.rate("plain"), 1),
            "old_tokens_per_s": _rounded(figures.rate("old"), 1),
            "tokens_per_s": _rounded(figures.rate("ours"), 1),
            "ratio": _rounded(figures.ratio, 4),
            "bytes_per_s": _rounded(figures.bytes_per_s, None),
            "peak_rss_gib": round(figures.peak_bytes / 1024**3, 2),
            "detectors_share": _rounded(figures.detectors_share, 5),
            "unchecked_tokens_per_s": _rounded(figures.rate("unchecked"), 1),
        }
    )


def as_table(figures: Figures) -> str:
    """For people: a line a road, with the rate of each round."""
    workload = figures.workload
    lines = [
        f"{workload.options.model.name} on {figures.device}: {workload.prompts} x "
        f"{workload.length:,} tokens, {workload.options.max_tokens_per_step:,} a step, "
        f"capture points {','.join(map(str, workload.options.capture_points))}"
    ]
    for road in figures.rates:
        rounds = ", ".join(f"{rate:,.0f}" for rate in figures.rates[road])
        lines.append(f"{_NAMES[road]:<36}{figures.rate(road):>10,.0f} tokens/s  ({rounds})")
    if figures.ratio is not None:
        lines.append(f"{'extract to plain prefill':<36}{figures.ratio:>10.3f}")
    if figures.bytes_per_s is not None:
        lines.append(f"{'states on disk':<36}{figures.bytes_per_s / 1e6:>10,.0f} MB/s")
        lines.append(f"{'memory of all processes':<36}{figures.peak_bytes / 1024**3:>10.2f} GiB")
    if figures.detectors_share is not None and figures.detectors_bytes_per_s is not None:
        share = f"{figures.detectors_share:.2%}"
        rate = figures.detectors_bytes_per_s / 1e9
        lines.append(f"{'detectors':<36}{share:>10} of the CPU time, {rate:.1f} GB/s a core")
    return "\n".join(lines)


def append(figures: Figures, file: Path) -> None:
    """Adds a row to the scoreboard `file`, which is made where it is missing."""
    workload = figures.workload
    cells = (
        datetime.now(UTC).date().isoformat(),
        _commit(),
        figures.device,
        workload.options.model.name,
        f"{workload.prompts} x {workload.length:,}",
        f"{workload.options.max_tokens_per_step:,}",
        *(_cell(figures.rate(road), ",.0f") for road in ("plain", "old", "ours")),
        _cell(figures.ratio, ".3f"),
        _cell(figures.bytes_per_s and figures.bytes_per_s / 1e6, ",.0f"),
        f"{figures.peak_bytes / 1024**3:.1f} GiB",
    )
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else _HEAD
        file.write_text(text + f"| {' | '.join(cells)} |\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {file}: {error.strerror}") from error


def _commit() -> str:
    """The commit of the workspace that `bazel run` stands in, with a + where files differ."""
    workspace = os.environ.get("BUILD_WORKSPACE_DIRECTORY", ".")
    command = ["git", "-C", workspace, "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _rounded(value: float | None, digits: int | None) -> Any:
    return None if value is None else round(value, digits)


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
