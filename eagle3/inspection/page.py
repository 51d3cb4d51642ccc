"""A report as one page, which needs nothing but a browser."""

import html
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict

from eagle3.inspection.histogram import Histogram
from eagle3.inspection.preview import Span
from eagle3.inspection.report import InspectionReport
from eagle3.inspection.statistics import PointStatistics
from eagle3.inspection.table import POINT_COLUMNS, point_cells, summary_rows

_HEIGHT = 240
_LABELS = 24
_BAR_WIDTH = 16
_POINT_WIDTH = 96
_AXIS_WIDTH = 64
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2em; color: #222; background: #fff; }}
table {{ border-collapse: collapse; }}
th, td {{ text-align: left; padding: 0.1em 1em 0.1em 0; vertical-align: top; }}
.points th, .points td {{ text-align: right; }}
rect {{ fill: #4a7ab5; }}
rect:hover {{ fill: #d97a26; }}
line {{ stroke: #4a7ab5; stroke-width: 2; }}
line.median {{ stroke: #fff; }}
text {{ font-size: 12px; fill: #555; }}
pre {{ white-space: pre-wrap; background: #f6f6f6; padding: 1em; }}
.supervised {{ color: #18794e; font-weight: bold; }}
.context {{ color: #777; }}
</style>
</head>
<body>
<h1>{title}</h1>
<table>
{summary}
</table>
{sections}
<details><summary>Manifest</summary><pre>{manifest}</pre></details>
</body>
</html>
"""


def render_page(report: InspectionReport, spans: Sequence[Span]) -> str:
    """The page; `spans` are the text of the report's sample.

    Every figure tells its numbers where the pointer rests on it.
    """
    sections = [
        _section("Samples by length", _lengths(report.lengths)),
        _section("Capture points", _points_table(report.points)) if report.points else "",
        _section("Norms of the rows", _norms(report.points)) if report.points else "",
        _section("A sample", _text(spans)) if spans else "",
    ]
    return _PAGE.format(
        title=html.escape(report.folder.name),
        summary="\n".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in summary_rows(report).items()
        ),
        sections="\n".join(filter(None, sections)),
        manifest=html.escape(json.dumps(asdict(report.manifest), indent=2)),
    )


def _section(title: str, content: str) -> str:
    return f"<h2>{title}</h2>\n{content}"


def _svg(label: str, width: float, content: Sequence[str]) -> str:
    return (
        f'<svg width="{width:.0f}" height="{_HEIGHT + _LABELS}" role="img" aria-label="{label}">\n'
        + "\n".join(content)
        + "\n</svg>"
    )


def _lengths(lengths: Histogram) -> str:
    tallest = max(lengths.counts, default=1)
    bars = []
    for number, count in enumerate(lengths.counts):
        # A single long sample among thousands of short ones must still be seen.
        height = max(round(_HEIGHT * count / tallest), int(count > 0))
        first, after = lengths.edges[number : number + 2]
        bars.append(
            f'<rect x="{number * _BAR_WIDTH}" y="{_HEIGHT - height}" width="{_BAR_WIDTH - 1}" '
            f'height="{height}"><title>{first:,} to {after - 1:,} tokens: {count:,}</title></rect>'
        )
    width = max(1, len(lengths.counts)) * _BAR_WIDTH
    below = _HEIGHT + _LABELS - 6
    bars.append(f'<text x="0" y="{below}">{lengths.edges[0]:,} tokens</text>')
    bars.append(
        f'<text x="{width}" y="{below}" text-anchor="end">{lengths.edges[-1] - 1:,} tokens</text>'
    )
    return _svg("Samples by length in tokens", width, bars)


def _points_table(points: Sequence[PointStatistics]) -> str:
    rows = [
        "".join(f"<th>{name}</th>" for name in POINT_COLUMNS),
        *("".join(f"<td>{cell}</td>" for cell in point_cells(point)) for point in points),
    ]
    return '<table class="points">\n' + "\n".join(f"<tr>{row}</tr>" for row in rows) + "\n</table>"


def _norms(points: Sequence[PointStatistics]) -> str:
    """For each point a line from the smallest norm to the largest, and a box for nine tenths."""
    place = _logarithmic(
        min(point.norm_min for point in points), max(point.norm_max for point in points)
    )
    drawn = []
    for number, point in enumerate(points):
        middle = _AXIS_WIDTH + (number + 0.5) * _POINT_WIDTH
        left, right = middle - _POINT_WIDTH / 4, middle + _POINT_WIDTH / 4
        top, bottom = place(point.norm_p95), place(point.norm_p05)
        median = place(point.norm_median)
        drawn.append(
            f"<g><title>after {point.capture_point} layers: median {point.norm_median:.4g}, "
            f"nine tenths from {point.norm_p05:.4g} to {point.norm_p95:.4g}, all from "
            f"{point.norm_min:.4g} to {point.norm_max:.4g}</title>"
            f'<line x1="{middle:.0f}" x2="{middle:.0f}" y1="{place(point.norm_max):.1f}" '
            f'y2="{place(point.norm_min):.1f}"/>'
            f'<rect x="{left:.0f}" y="{top:.1f}" width="{right - left:.0f}" '
            f'height="{max(bottom - top, 2):.1f}"/>'
            f'<line class="median" x1="{left:.0f}" x2="{right:.0f}" y1="{median:.1f}" '
            f'y2="{median:.1f}"/>'
            f'<text x="{middle:.0f}" y="{_HEIGHT + _LABELS - 6}" text-anchor="middle">'
            f"{point.capture_point}</text></g>"
        )
    largest = max(point.norm_max for point in points)
    smallest = min(point.norm_min for point in points)
    drawn.append(f'<text x="0" y="12">{largest:.4g}</text>')
    drawn.append(f'<text x="0" y="{_HEIGHT}">{smallest:.4g}</text>')
    return _svg("Norms by capture point", _AXIS_WIDTH + len(points) * _POINT_WIDTH, drawn)


def _logarithmic(smallest: float, largest: float) -> Callable[[float], float]:
    """Where a value stands on the vertical axis; rows of zeros stand at its foot."""
    foot = max(smallest, largest * 1e-9, 1e-30)
    decades = math.log(max(largest, foot) / foot) or 1.0
    return lambda value: _HEIGHT * (1 - math.log(max(value, foot) / foot) / decades)


def _text(spans: Sequence[Span]) -> str:
    marked = "".join(
        f'<span class="{"supervised" if span.supervised else "context"}">'
        f"{html.escape(span.text)}</span>"
        for span in spans
    )
    return f"<pre>{marked}</pre>"
