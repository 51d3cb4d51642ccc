"""A report as people read it."""

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from eagle3.inspection.compare import Comparison
from eagle3.inspection.preview import Span, make_spans
from eagle3.inspection.report import InspectionReport, Verification
from eagle3.inspection.statistics import PointStatistics

PREVIEW_TOKENS = 200
_SHOWN = 10
POINT_COLUMNS = (
    "point",
    "rows",
    "norm",
    "median",
    "min",
    "max",
    "largest",
    "unit",
    "outliers",
)
_SUPERVISED, _CONTEXT, _BAD = "bold green", "dim", "bold red"


def render(
    report: InspectionReport, decode: Callable[[Sequence[int]], str], *, whole_sample: bool
) -> RenderableType:
    """The report as tables and coloured text; `whole_sample` shows all of the sample's tokens."""
    blocks: list[RenderableType] = [_summary(report)]
    if report.verification:
        blocks += [Text(), _verification(report.verification)]
    if report.comparison:
        blocks += [Text(), _comparison(report.comparison)]
    if report.points:
        blocks += [Text(), _points(report.points)]
    if report.sample and report.entry:
        length = None if whole_sample else PREVIEW_TOKENS
        blocks += [Text(), _preview(report, make_spans(report.sample, decode, length))]
    return Group(*blocks)


def summary_rows(report: InspectionReport) -> dict[str, str]:
    """What the store holds and where it comes from, by a word for each."""
    manifest = report.manifest
    versions = manifest.stack.versions
    # The builds of vLLM for other devices have a suffix.
    named = [
        f"{name} {version}"
        for name, version in versions.items()
        if name.partition("-")[0] == "vllm" or name in ("torch", "speculators")
    ]
    stack = ", ".join([manifest.stack.name, *named])
    points = ", ".join(map(str, manifest.capture_points))
    norm = "after" if manifest.norm_applied else "before"
    whole = manifest.dataset.samples
    state = "complete" if report.is_complete else f"of {whole:,}"
    aside = ", ".join(f"{kind}: {count:,}" for kind, count in report.quarantined.items())
    rows = {
        "where": str(report.folder),
        "samples": f"{report.samples:,} ({state}), {report.tokens:,} tokens",
        "held out": _held_out(report),
        "shards": f"{report.shards:,}, {report.bytes:,} bytes of tensors",
        "states": f"[T, {len(manifest.capture_points)}, {manifest.hidden_size}] {manifest.dtype}",
        "points": f"after {points} layers, {norm} the norm",
        "target": manifest.target.path,
        "stack": f"{stack}; {len(manifest.stack.patches)} patches",
        "set aside": aside or "none",
        "command": manifest.command,
    }
    if report.used:
        rows["used"] = f"{report.used:,} samples more, removed by training"
    if report.merged_parts:
        rows["parts"] = f"{report.merged_parts:,}, merged now"
    elif report.parts:
        rows["parts"] = f"{report.parts:,}; --merge joins them"
    return rows


def _held_out(report: InspectionReport) -> str:
    if not report.held_out:
        return "none"
    return f"{report.held_out:,} samples, {report.held_out_tokens:,} tokens, by prepare"


def _summary(report: InspectionReport) -> Text:
    rows = summary_rows(report)
    return Text("\n".join(f"{name:<11}{value}" for name, value in rows.items()))


def _verification(verification: Verification) -> RenderableType:
    rate = verification.bytes / verification.seconds / 1e9 if verification.seconds else 0.0
    damaged = {sample_id for ids in verification.damages.values() for sample_id in ids}
    line = (
        f"verified: {verification.samples - len(damaged):,} of {verification.samples:,} samples "
        f"are as committed; {verification.bytes:,} bytes at {rate:.2f} GB/s"
    )
    lines = [Text(line, _BAD if damaged else "")]
    for damage, ids in verification.damages.items():
        lines.append(Text(f"  {damage} [{len(ids):,} samples]", _BAD))
    return Group(*lines)


def _comparison(comparison: Comparison) -> RenderableType:
    lines = [
        f"compared: {comparison.equal:,} samples are equal, {len(comparison.different):,} differ, "
        f"{len(comparison.only_here):,} only here, {len(comparison.only_there):,} only there"
    ]
    if comparison.manifest:
        lines.append(f"  manifests: {comparison.manifest}")
    for difference in comparison.different[:_SHOWN]:
        lines.append(
            f"  {difference.id}: cosine {difference.cosine:.6f} at point "
            f"{difference.capture_point}, largest difference {difference.largest:g}"
        )
    for where, ids in (("here", comparison.only_here), ("there", comparison.only_there)):
        lines += [f"  {sample_id}: only {where}" for sample_id in ids[:_SHOWN]]
    return Text("\n".join(lines))


def point_cells(point: PointStatistics) -> tuple[str, ...]:
    """The statistics of a point, in the order of POINT_COLUMNS."""
    return (
        str(point.capture_point),
        f"{point.rows:,}",
        f"{point.norm_mean:.4g}",
        f"{point.norm_median:.4g}",
        f"{point.norm_min:.4g}",
        f"{point.norm_max:.4g}",
        f"{point.largest:.4g}",
        str(point.largest_unit),
        f"{point.outlier_rows:,}",
    )


def _points(points: Sequence[PointStatistics]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), title=None)
    for name in POINT_COLUMNS:
        table.add_column(name, justify="right")
    for point in points:
        table.add_row(*point_cells(point))
    return table


def _preview(report: InspectionReport, spans: Sequence[Span]) -> Text:
    sample, entry = report.sample, report.entry
    assert sample is not None
    assert entry is not None
    shown = sum(span.tokens for span in spans)
    text = Text(
        f"sample {entry.id}: rows {entry.offset:,} to {entry.offset + entry.length:,} of "
        f"{entry.shard}, {sum(sample.loss_mask):,} of {entry.length:,} tokens supervised"
        f"{', held out' if entry.held_out else ''}\n"
    )
    for span in spans:
        # The mark tells the mask where there are no colours.
        style, mark = (_SUPERVISED, "+") if span.supervised else (_CONTEXT, " ")
        for line in span.text.splitlines() or [""]:
            text.append(f"{mark} {line}\n", style)
    if shown < entry.length:
        text.append(f"  ... {entry.length - shown:,} more tokens; --find {entry.id[:8]} shows all")
    text.rstrip()
    return text
