"""One page with the lengths of the samples, which needs nothing but a browser."""

import html
from itertools import pairwise
from pathlib import Path

import numpy as np

from eagle3.preparation.statistics import Statistics

_BARS = 48
_HEIGHT = 240
_BAR_WIDTH = 16
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Lengths of {name}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2em; color: #222; background: #fff; }}
rect {{ fill: #4a7ab5; }}
rect:hover {{ fill: #d97a26; }}
text {{ font-size: 12px; fill: #555; }}
</style>
</head>
<body>
<h1>{name}</h1>
<p>{samples:,} samples, {tokens:,} tokens, {supervised:.1%} of them supervised.
Half of the samples have at most {median:,} tokens, 95 % at most {p95:,},
all at most {longest:,}.</p>
<svg width="{width}" height="{height}" role="img" aria-label="Samples by length in tokens">
{bars}
<text x="0" y="{label_y}">{first} tokens</text>
<text x="{chart_width}" y="{label_y}" text-anchor="end">{last} tokens</text>
</svg>
</body>
</html>
"""


def write_page(path: Path, name: str, statistics: Statistics) -> None:
    """Writes a histogram of the lengths; the pointer on a bar tells its range and its count."""
    edges, counts = histogram(statistics)
    tallest = max(counts.max(), 1)
    bars = []
    for number, count in enumerate(counts):
        height = round(_HEIGHT * count / tallest)
        # A single long sample among thousands of short ones must still be seen.
        height = max(height, int(count > 0))
        bars.append(
            f'<rect x="{number * _BAR_WIDTH}" y="{_HEIGHT - height}" width="{_BAR_WIDTH - 1}" '
            f'height="{height}"><title>{edges[number]:,} to {edges[number + 1] - 1:,} tokens: '
            f"{count:,}</title></rect>"
        )
    page = _PAGE.format(
        name=html.escape(name),
        samples=statistics.samples.total(),
        tokens=statistics.tokens,
        supervised=statistics.supervised / statistics.tokens,
        median=statistics.quantile(0.5),
        p95=statistics.quantile(0.95),
        longest=statistics.quantile(1.0),
        width=len(counts) * _BAR_WIDTH,
        chart_width=len(counts) * _BAR_WIDTH,
        height=_HEIGHT + 24,
        label_y=_HEIGHT + 18,
        bars="\n".join(bars),
        first=f"{edges[0]:,}",
        last=f"{edges[-1] - 1:,}",
    )
    path.write_text(page, encoding="utf-8")


def histogram(statistics: Statistics) -> tuple[np.ndarray, np.ndarray]:
    """Edges (whole tokens, one more than bars) and samples a bar, up to the longest sample."""
    longest = statistics.quantile(1.0)
    step = max(1, -(-longest // _BARS))
    edges = np.arange(1, longest + step + 1, step)
    counts = [int(statistics.lengths[first:after].sum()) for first, after in pairwise(edges)]
    return edges, np.array(counts)
