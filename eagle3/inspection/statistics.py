"""Statistics of the states at each capture point."""

from dataclasses import dataclass

import torch

from eagle3.store.reader import StoreReader

# A row with so many times the usual norm stands out, as the first token's does in many models.
_OUTLIER_NORM = 10.0


@dataclass(frozen=True)
class PointStatistics:
    """Of `rows` rows [H] at `capture_point`.

    Norms are L2; nine tenths of them lie from `norm_p05` to `norm_p95`. `largest` is the largest
    absolute value, in the unit `largest_unit`. `outlier_rows` have more than ten times the median
    norm.
    """

    capture_point: int
    rows: int
    norm_mean: float
    norm_median: float
    norm_min: float
    norm_p05: float
    norm_p95: float
    norm_max: float
    largest: float
    largest_unit: int
    outlier_rows: int


def choose_samples(store: StoreReader, max_tokens: int) -> list[str]:
    """Ids of samples evenly spread over the store, of about `max_tokens` tokens at most."""
    ids = store.ids
    if not ids:
        return []
    wanted = max(1, min(len(ids), len(ids) * max_tokens // store.tokens))
    return [ids[number * len(ids) // wanted] for number in range(wanted)]


def measure_points(store: StoreReader, ids: list[str]) -> list[PointStatistics]:
    """Statistics of the rows of the samples `ids`, one for each capture point.

    Every sample is checked as it is read. Raises StoreError.
    """
    if not ids:
        return []
    norms_TL = []
    peaks_LH = torch.zeros(len(store.manifest.capture_points), store.manifest.hidden_size)
    for sample_id in ids:
        _, hidden_states_TLH = store.read(sample_id)
        states_TLH = hidden_states_TLH.float()
        norms_TL.append(states_TLH.norm(dim=2))
        peaks_LH = torch.maximum(peaks_LH, states_TLH.abs().amax(dim=0))
    points = store.manifest.capture_points
    return [
        _point(point, torch.cat(norms_TL)[:, layer], peaks_LH[layer])
        for layer, point in enumerate(points)
    ]


def _point(capture_point: int, norm_T: torch.Tensor, peak_H: torch.Tensor) -> PointStatistics:
    median = norm_T.median()
    return PointStatistics(
        capture_point=capture_point,
        rows=len(norm_T),
        norm_mean=float(norm_T.mean()),
        norm_median=float(median),
        norm_min=float(norm_T.min()),
        norm_p05=_quantile(norm_T, 0.05),
        norm_p95=_quantile(norm_T, 0.95),
        norm_max=float(norm_T.max()),
        largest=float(peak_H.max()),
        largest_unit=int(peak_H.argmax()),
        outlier_rows=int((norm_T > _OUTLIER_NORM * median).sum()),
    )


def _quantile(values_T: torch.Tensor, share: float) -> float:
    # torch.quantile takes no more than 16 million values.
    return float(values_T.kthvalue(1 + round(share * (len(values_T) - 1))).values)
