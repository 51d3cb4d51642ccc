"""Whether the loss masks of the data tell anything."""

from collections.abc import Iterator

from eagle3.checks.finding import Finding
from eagle3.checks.situation import Situation


def check_supervision(situation: Situation) -> Iterator[Finding]:
    """All tokens or none is what a template without marks, or data without masks, gives."""
    samples = situation.plan.planned.samples
    tokens = sum(len(sample.input_ids) for sample in samples)
    supervised = sum(sum(sample.loss_mask) for sample in samples)
    found = (
        f"{len(samples):,} samples, {tokens:,} tokens, {supervised / tokens:.1%} of them supervised"
    )
    if supervised in (0, tokens):
        fix = "give conversations, or `loss_mask` beside `input_ids`, unless that is meant"
        yield Finding("supervision", "warn", found, fix)
    else:
        yield Finding("supervision", "ok", found)
