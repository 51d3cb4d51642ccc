"""One bench: our step, the peers', and what the device could do."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from eagle3.benchmark.training.measure import Measurement, measure
from eagle3.benchmark.training.ours import Parallel, our_step
from eagle3.benchmark.training.peer import PeerMeasurement, measure_peer
from eagle3.benchmark.training.processes import measure_processes
from eagle3.benchmark.training.profile import write_profile
from eagle3.benchmark.training.shape import BenchShape
from eagle3.draft.fp8 import check_fp8
from eagle3.progress import Progress
from eagle3.training.arithmetic import flops_per_token, peak_flops
from eagle3.training.distributed import Processes


@dataclass(frozen=True)
class Bench:
    """`size` and `tokens` None: as suits the device. No `baseline_sites`: this environment's.

    `processes` above 1 are measured after one process alone, each with as many tokens.
    """

    size: str | None
    tokens: int | None
    unroll_steps: int
    train_head: bool
    fp8: bool
    rounds: int
    baseline: bool
    baseline_sites: tuple[Path, ...]
    profile: Path | None
    processes: int = 1
    parallel: Parallel = "ddp"


def bench(request: Bench, progress: Progress) -> dict[str, Any]:
    """The figures by name; `baseline` names the fastest peer, or says why there is none.

    Raises InputError where the device cannot do what is asked for.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if request.fp8:
        check_fp8(device)
    size = request.size or ("large" if device.type == "cuda" else "small")
    chosen = {"tokens": request.tokens} if request.tokens else {}
    make = BenchShape.large if size == "large" else BenchShape.small
    shape = make(
        unroll_steps=request.unroll_steps,
        train_head=request.train_head,
        fp8=request.fp8,
        **chosen,
    )
    # The peers first: they find the GPU empty.
    sites = (request.baseline_sites or (None,)) if request.baseline else ()
    peers: list[PeerMeasurement | str] = []
    for site in sites:
        name = site.name if site else "the installed one"
        with progress.waiting(f"measuring speculators, {name}"):
            peers.append(measure_peer(shape, site, device, request.rounds))
    with progress.waiting("measuring ours"):
        step = our_step(shape, Processes(0, 1, device))
        ours = measure(step, shape.tokens, device, request.rounds, refuse_recompilation=True)
    if request.profile:
        write_profile(step, device, request.profile)
    together = None
    if request.processes > 1:
        # The device is theirs now.
        del step
        torch.cuda.empty_cache()
        with progress.waiting(f"measuring {request.processes} processes"):
            together = measure_processes(shape, request.processes, request.parallel, request.rounds)
    flops = flops_per_token(shape.config, shape.unroll_steps, train_head=shape.train_head)
    peak = peak_flops(device)
    return {
        **asdict(ours),
        **_beside(ours, peers),
        "mfu": ours.tokens_per_s * flops / peak if peak else None,
        "processes": request.processes,
        "parallel": request.parallel,
        "processes_tokens_per_s": together and together.tokens_per_s,
        "processes_ratio": together and together.tokens_per_s / ours.tokens_per_s,
        "processes_peak_gib": together and together.peak_gib,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        "torch": torch.__version__,
        "tokens": shape.tokens,
        "unroll_steps": shape.unroll_steps,
        "train_head": shape.train_head,
        "fp8": shape.fp8,
    }


def _beside(ours: Measurement, peers: Sequence[PeerMeasurement | str]) -> dict[str, Any]:
    """What the peers did, the fastest first, and why others did nothing."""
    measured = [
        {
            "name": f"speculators {peer.version}",
            "tokens_per_s": peer.measurement.tokens_per_s,
            "peak_gib": peer.measurement.peak_gib,
            "compile_s": peer.measurement.compile_s,
            "ratio": ours.tokens_per_s / peer.measurement.tokens_per_s,
        }
        for peer in peers
        if isinstance(peer, PeerMeasurement)
    ]
    measured.sort(key=lambda peer: peer["ratio"])
    failed = [peer for peer in peers if isinstance(peer, str)]
    fastest = measured[0] if measured else {"name": failed[0] if failed else None}
    return {
        "baseline": fastest["name"],
        "baseline_tokens_per_s": fastest.get("tokens_per_s"),
        "baseline_peak_gib": fastest.get("peak_gib"),
        "ratio": fastest.get("ratio"),
        "baselines": measured,
        "baselines_failed": failed,
    }
