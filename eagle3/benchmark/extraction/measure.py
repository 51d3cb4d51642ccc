"""Measures extraction against the plain prefill of the same target, road by road."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from eagle3.benchmark.extraction.process import run_apart
from eagle3.benchmark.extraction.workload import Workload
from eagle3.progress import Progress


@dataclass(frozen=True)
class Figures:
    """What was measured: `rates` are tokens/s of a road, one for each round (its median pass).

    `peak_bytes` is the most memory that the processes of our road held, `detectors` what share of
    the CPU time of each of its passes the detectors took, and `detector_rates` the bytes of states
    that they looked at in a second of it.
    """

    workload: Workload
    device: str
    rates: dict[str, list[float]]
    peak_bytes: int
    detectors: list[float]
    detector_rates: list[float]

    def rate(self, road: str) -> float | None:
        """The median round of a road; None where it was left out."""
        rates = self.rates.get(road)
        return statistics.median(rates) if rates else None

    @property
    def ratio(self) -> float | None:
        """Ours to plain prefill: the median of the rounds, in each of which both ran."""
        pairs = zip(self.rates.get("ours", ()), self.rates.get("plain", ()), strict=False)
        ratios = [ours / plain for ours, plain in pairs]
        return statistics.median(ratios) if ratios else None

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes of states that reached the disk."""
        rate = self.rate("ours")
        return rate and rate * self.workload.row_bytes

    @property
    def detectors_share(self) -> float | None:
        """Of the CPU time of our road: the median pass."""
        return statistics.median(self.detectors) if self.detectors else None

    @property
    def detectors_bytes_per_s(self) -> float | None:
        """Of a core: the median pass."""
        return statistics.median(self.detector_rates) if self.detector_rates else None


def measure(workload: Workload, roads: Sequence[str], rounds: int, progress: Progress) -> Figures:
    """Runs the roads one after the other, `rounds` times; the old road, which is slow, once."""
    from eagle3.benchmark.extraction.roads import PassTimes, device_name, time_road

    rates: dict[str, list[float]] = {road: [] for road in roads}
    peak_bytes = 0
    ours: list[PassTimes] = []
    for number in range(rounds):
        for road in roads:
            if road == "old" and number:
                continue
            began = time.monotonic()
            progress.say(f"{road}: round {number + 1} of {rounds} ...")
            passes, most_bytes = run_apart(time_road, road, workload)
            seconds = statistics.median(times.seconds for times in passes)
            rates[road].append(workload.tokens / seconds)
            if road == "ours":
                ours += passes
                peak_bytes = max(peak_bytes, most_bytes)
            progress.say(
                f"{road}: {rates[road][-1]:,.0f} tokens/s "
                f"({time.monotonic() - began:.0f} s with the start of the target)"
            )
    device, _ = run_apart(device_name)
    looked_at = workload.tokens * workload.row_bytes
    return Figures(
        workload,
        device,
        rates,
        peak_bytes,
        # CPU time is counted in hundredths of a second, and a small pass may take none.
        [times.detectors_s / times.cpu_s for times in ours if times.cpu_s],
        [looked_at / times.detectors_s for times in ours if times.detectors_s],
    )
