"""A report as people read it, and as programs do."""

import math
from collections.abc import Mapping
from typing import Any

from eagle3.evaluation.acceptance import Acceptance
from eagle3.evaluation.report import EvaluationReport, Result

_DEFINITION = (
    "acceptance length: tokens a verifying pass of the target gives, its own bonus token included"
)
_SHOWN = 5


def as_json(report: EvaluationReport) -> dict[str, Any]:
    """The report's figures; `per_position` is joint: the share of steps that got so far."""
    greedy, floor = report.greedy.total, report.floor
    return {
        "acceptance_length": round(greedy.length, 4),
        "floor_acceptance_length": round(floor.total.length, 4) if floor else None,
        "floors": _lengths(report.floors),
        "beside": _lengths(report.beside),
        "failed": dict(report.failed),
        "per_position": [round(share, 4) for share in greedy.joint],
        "lossless": report.lossless,
        "divergences": len(report.divergences),
        "widest_gap": round(report.widest_gap, 4) if report.widest_gap < math.inf else None,
        "clearly_wins": report.clearly_wins,
        "per_position_conditional": [round(share, 4) for share in greedy.conditional],
        "by_kind": {kind: round(a.length, 4) for kind, a in report.greedy.acceptance.items()},
        "sampled_acceptance_length": (
            round(report.sampled.total.length, 4) if report.sampled else None
        ),
        "temperature": report.temperature,
        "tokens_per_s": _speeds(report.greedy.tokens_per_s),
        "tokens_per_s_alone": _speeds(report.alone_tokens_per_s),
        "identical": _shares(report.identical),
        "identical_alone": _shares(report.identical_alone),
        "steps": greedy.count,
        "prompts": report.prompts,
        "reasoning": report.reasoning,
        "speculative_tokens": report.speculative_tokens,
        "backend": report.backend,
        "device": report.device,
    }


def _lengths(results: Mapping[str, Result]) -> dict[str, float]:
    return {name: round(result.total.length, 4) for name, result in results.items()}


def _shares(shares: Mapping[int, float]) -> dict[str, float]:
    return {str(batch): round(share, 4) for batch, share in shares.items()}


def _speeds(speeds: Mapping[int, float]) -> dict[str, float]:
    return {str(batch): round(speed, 1) for batch, speed in speeds.items()}


def as_table(report: EvaluationReport) -> str:
    """Tables of acceptance and speed, and a sentence on each thing that may be wrong."""
    positions = range(1, report.speculative_tokens + 1)
    header = f"{'':<34}{'length':>8}{'+-':>7}{'steps':>8}  " + "".join(
        f"{f'#{position}':>7}" for position in positions
    )
    rows = [("greedy", report.greedy.total)]
    if len(report.greedy.acceptance) > 1:
        rows += [(f"  {kind}", a) for kind, a in report.greedy.acceptance.items()]
    if report.sampled is not None:
        rows.append((f"temperature {report.temperature:g}", report.sampled.total))
    rows += [(f"floor: {name}", floor.total) for name, floor in report.floors.items()]
    rows += [(f"beside: {name}", other.total) for name, other in report.beside.items()]
    lines = [
        f"{report.prompts} prompts{', which ask to think' if report.reasoning == 'keep' else ''}, "
        f"chains of {report.speculative_tokens}, backend {report.backend} on {report.device}",
        "",
        header,
        *(_row(name, a.joint, a) for name, a in rows),
        _row("greedy, of those that got there", report.greedy.total.conditional, None),
        "",
        *_speed_lines(report),
        _DEFINITION,
        "#n: share of steps that accepted drafted token n",
        *_verdicts(report),
    ]
    return "\n".join(lines)


def _row(name: str, shares: tuple[float, ...], acceptance: Acceptance | None) -> str:
    figures = " " * 23
    if acceptance is not None:
        figures = f"{acceptance.length:>8.3f}{acceptance.length_error:>7.3f}{acceptance.count:>8,}"
    return f"{name:<34}{figures}  " + "".join(f"{share:>7.1%}" for share in shares)


def _speed_lines(report: EvaluationReport) -> list[str]:
    if not report.greedy.tokens_per_s:
        return []
    lines = [
        f"{'prompts at once':<34}{'alone':>10}{'drafted':>10}   {'tokens/s':<10}"
        "outputs equal to the target's, one at a time"
    ]
    for batch, alone in report.alone_tokens_per_s.items():
        drafted = report.greedy.tokens_per_s[batch]
        ratio = f"{drafted / alone:.2f} x" if alone else ""
        same, of_target = report.identical[batch], report.identical_alone[batch]
        lines.append(
            f"{batch:<34}{alone:>10,.1f}{drafted:>10,.1f}   {ratio:<10}{same:.1%} "
            f"(alone {of_target:.1%})"
        )
    return [*lines, ""]


def _verdicts(report: EvaluationReport) -> list[str]:
    ties = [d for d in report.divergences if d.gap <= report.tie]
    wrong = [d for d in report.divergences if d.gap > report.tie]
    lines = [f"lossless: {'yes' if report.lossless else 'NO'}: greedy output is the target's own"]
    if ties:
        widest = max(divergence.gap for divergence in ties)
        lines[-1] += f", but for {len(ties)} ties of the arithmetic, by {widest:.3g} at most"
    lines += [
        f"  {d.place}: differs at token {d.position}, where the target is sure by {d.gap:.3g}"
        for d in wrong[:_SHOWN]
    ]
    lines += [f"NOT MEASURED: {name}: {reason}" for name, reason in report.failed.items()]
    if report.clearly_wins:
        lines.append("the draft clearly beats the floor")
    elif report.floor is None:
        lines.append("WARNING: no floor could be measured")
    else:
        lines.append(
            "WARNING: the draft does not clearly beat the floor: too little training, states of "
            "another target, or too few prompts"
        )
    return lines
