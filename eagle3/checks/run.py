"""All checks, in the order of what must be right first."""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from eagle3.checks.decoder import check_decoder
from eagle3.checks.devices import check_devices
from eagle3.checks.disk import check_disk
from eagle3.checks.draft import check_draft
from eagle3.checks.finding import Finding
from eagle3.checks.kernels import check_kernels
from eagle3.checks.layers import check_layers
from eagle3.checks.machine import read_machine
from eagle3.checks.memory import check_memory
from eagle3.checks.options import check_engine_options
from eagle3.checks.parallel import check_parallel
from eagle3.checks.quantization import check_quantization
from eagle3.checks.situation import Situation
from eagle3.checks.supervision import check_supervision
from eagle3.checks.tokenizer import check_tokenizer
from eagle3.checks.weights import check_weights
from eagle3.errors import Eagle3Error, InputError
from eagle3.extraction.plan import ExtractionPlan
from eagle3.extraction.request import ExtractionRequest
from eagle3.progress import Progress

_CHECKS: dict[str, Callable[[Situation], Iterator[Finding]]] = {
    "devices": check_devices,
    "kernels": check_kernels,
    "weights": check_weights,
    "decoder": check_decoder,
    "layers": check_layers,
    "draft": check_draft,
    "options": check_engine_options,
    "quantization": check_quantization,
    "parallel": check_parallel,
    "memory": check_memory,
    "tokenizer": check_tokenizer,
    "supervision": check_supervision,
    "disk": check_disk,
}
# These take time, and there is no plan where they would fail.
_SHOWN_BY_THE_PLAN = {"tokenizer", "disk"}
# What bears on a target whatever it is loaded for.
_OF_THE_TARGET = {
    "devices",
    "kernels",
    "weights",
    "decoder",
    "quantization",
    "parallel",
    "memory",
}


def run_checks(situation: Situation, *, without: Collection[str] = ()) -> Iterator[Finding]:
    """Yields the findings of all checks as they come, whatever some of them find.

    What a check cannot be made without is one finding, the first time that it is missing. A
    config.json that a check does not understand is no reason why vLLM should not.
    """
    told: dict[str, str] = {}
    for name, check in _CHECKS.items():
        if name in without:
            continue
        try:
            yield from check(situation)
        except Eagle3Error as error:
            message = str(error)
            if message in told:
                found = f"not checked for the same reason as {told[message]}"
                yield Finding(name, "warn", found, "mend that first")
                continue
            told[message] = name
            found, _, fix = message.rpartition("; ")
            yield Finding(name, "fail", found or fix, fix if found else "")
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            found = f"could not be checked ({type(error).__name__}: {error})"
            yield Finding(name, "warn", found, "see whether the target's config.json is right")


def check_before_the_load(
    request: ExtractionRequest, plan: ExtractionPlan, progress: Progress
) -> None:
    """Says what is not as it should be. Raises InputError where something will not work."""
    _tell(Situation(request, read_machine(), plan), _SHOWN_BY_THE_PLAN, progress)


def check_target(
    model: Path,
    progress: Progress,
    *,
    tensor_parallel: int = 1,
    gpu_memory_utilization: float = 0.8,
    without: Collection[str] = (),
) -> None:
    """The same before a target is loaded for something else than its states, `without` some checks.

    What they look at is an extraction that is never run, and has no ring: cache and step that it
    would need are an estimate of what other ends do.
    """
    request = ExtractionRequest(
        model=model,
        data=model,
        out=model,
        tensor_parallel=tensor_parallel,
        gpu_memory_utilization=gpu_memory_utilization,
        ring_bytes=0,
    )
    left_out = (_CHECKS.keys() - _OF_THE_TARGET) | set(without)
    _tell(Situation(request, read_machine()), left_out, progress)


def _tell(situation: Situation, without: Collection[str], progress: Progress) -> None:
    findings = list(run_checks(situation, without=without))
    for finding in findings:
        if finding.verdict != "ok":
            progress.say(f"preflight: {finding.verdict}: {finding}")
    failed = [finding for finding in findings if finding.verdict == "fail"]
    if failed:
        raise InputError(
            f"preflight: {len(failed)} of {len(findings)} findings would stop the target, the "
            f"first {failed[0].check}; mend them, or start all the same with --no-preflight"
        )
    warned = sum(finding.verdict == "warn" for finding in findings)
    progress.say(f"preflight: {len(findings) - warned} ok, {warned} to look at")
