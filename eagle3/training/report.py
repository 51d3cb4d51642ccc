"""One page with the curves of a run, which needs nothing but a browser."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3.errors import StoreError

_WIDTH, _HEIGHT, _MARGIN = 720, 260, 56
_COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b83280", "#975a16", "#2c7a7b", "#4a5568")
_KINDS = ("train", "validation")
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{name}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2em; color: #222; background: #fff; }}
text {{ font-size: 12px; fill: #555; }}
polyline {{ fill: none; stroke-width: 1.5; }}
circle {{ stroke: none; }}
pre {{ background: #f5f5f5; padding: 1em; }}
</style>
</head>
<body>
<h1>{name}</h1>
<p>{summary}</p>
{charts}
<h2>Configuration</h2>
<pre>{config}</pre>
</body>
</html>
"""


@dataclass(frozen=True)
class Curve:
    """Points (step, value) in the order of the steps; in place of steps, tokens seen."""

    name: str
    points: Sequence[tuple[float, float]]


def write_report(
    path: Path, name: str, summary: str, config: str, records: Sequence[dict[str, Any]]
) -> None:
    """Writes the page for the records of metrics.jsonl; `config` is YAML. Raises StoreError."""
    charts = [draw_chart(title, curves, over) for title, curves, over in _charts(records) if curves]
    page = _PAGE.format(
        name=html.escape(name),
        summary=html.escape(summary),
        charts="\n".join(charts),
        config=html.escape(config),
    )
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}; the draft is exported") from error


def draw_chart(title: str, curves: Sequence[Curve], over: str = "step") -> str:
    """An SVG with a legend; the pointer on a point tells its step (or what `over` is) and value."""
    points = [point for curve in curves for point in curve.points]
    steps, values = [step for step, _ in points], [value for _, value in points]
    left, right, low, high = min(steps), max(steps), min(values), max(values)

    def place(step: float, value: float) -> tuple[float, float]:
        x = _MARGIN + (_WIDTH - 2 * _MARGIN) * (step - left) / (right - left or 1)
        y = _HEIGHT - 24 - (_HEIGHT - 48) * (value - low) / (high - low or 1)
        return round(x, 1), round(y, 1)

    drawn = []
    for number, curve in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [(*place(step, value), step, value) for step, value in curve.points]
        line = " ".join(f"{x},{y}" for x, y, _, _ in places)
        drawn.append(f'<polyline points="{line}" stroke="{colour}"/>')
        drawn += [
            f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"><title>{html.escape(curve.name)}, '
            f"{over} {step:,}: {value:.4g}</title></circle>"
            for x, y, step, value in places
        ]
        y = 24 + 16 * number
        drawn.append(
            f'<text x="{_WIDTH - _MARGIN + 6}" y="{y}" style="fill:{colour}">'
            f"{html.escape(curve.name)}</text>"
        )
    marks = [(0, _HEIGHT - 20, f"{low:.3g}"), (0, 28, f"{high:.3g}")]
    marks += [
        (_MARGIN, _HEIGHT - 4, f"{over} {left:,}"),
        (_WIDTH - _MARGIN - 40, _HEIGHT - 4, f"{right:,}"),
    ]
    drawn += [f'<text x="{x}" y="{y}">{text}</text>' for x, y, text in marks]
    width = _WIDTH + 90
    label = html.escape(title)
    return (
        f'<h2>{label}</h2>\n<svg width="{width}" height="{_HEIGHT}" role="img" '
        f'aria-label="{label}">\n' + "\n".join(drawn) + "\n</svg>"
    )


def _charts(records: Sequence[dict[str, Any]]) -> list[tuple[str, list[Curve], str]]:
    acceptance = _by_kind(records, "acceptance_length", _KINDS, over="tokens")
    over_steps = {
        "Loss": _by_kind(records, "loss", _KINDS),
        "Validation: joint acceptance of each unrolled step": _by_step(records, "joint"),
        "Validation: conditional acceptance of each unrolled step": _by_step(
            records, "conditional"
        ),
        "Learning rate": _by_kind(records, "learning_rate", _KINDS[:1]),
        "Norm of the gradient": _by_kind(records, "gradient_norm", _KINDS[:1]),
        "Tokens/s": _by_kind(records, "tokens_per_s", _KINDS[:1]),
    }
    return [
        ("Simulated acceptance length over tokens seen", acceptance, "tokens"),
        *((title, curves, "step") for title, curves in over_steps.items()),
    ]


def _by_kind(
    records: Sequence[dict[str, Any]], key: str, kinds: Sequence[str], over: str = "step"
) -> list[Curve]:
    curves = [
        Curve(kind, [(r[over], r[key]) for r in records if r["kind"] == kind and key in r])
        for kind in kinds
    ]
    return [curve for curve in curves if curve.points]


def _by_step(records: Sequence[dict[str, Any]], name: str) -> list[Curve]:
    key = f"{name}_per_step"
    validations = [record for record in records if record["kind"] == "validation"]
    steps = len(validations[0][key]) if validations else 0
    return [
        Curve(f"step {place}", [(record["step"], record[key][place]) for record in validations])
        for place in range(steps)
    ]
