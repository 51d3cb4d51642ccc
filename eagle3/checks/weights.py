"""Whether all of the weights are there."""

from collections.abc import Iterator

from eagle3.checks.finding import Finding
from eagle3.checks.situation import Situation
from eagle3.extraction.size import readable_size


def check_weights(situation: Situation) -> Iterator[Finding]:
    """Every file that the index names, of the size its header says."""
    checkpoint = situation.checkpoint
    if checkpoint.faults:
        others = len(checkpoint.faults) - 1
        found = checkpoint.faults[0] + (f", and {others} faults more" if others else "")
        fix = f"complete the folder {situation.request.model}"
        yield Finding("weights", "fail", found, fix)
        return
    files = f"{len(checkpoint.files)} files, {readable_size(checkpoint.size)}"
    yield Finding("weights", "ok", f"{files}, all there and of the size their headers say")
