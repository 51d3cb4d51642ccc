"""Whether a draft of the target could be served at all."""

from collections.abc import Iterator

from eagle3.checks.finding import Finding
from eagle3.checks.situation import Situation
from eagle3.draft.served_config import SERVED_FAMILIES, serves_drafts_for


def check_draft(situation: Situation) -> Iterator[Finding]:
    """Warns where vLLM refuses drafts for the target's family: `train` would refuse, too."""
    family = str(situation.config.get("model_type"))
    if serves_drafts_for(family):
        yield Finding("draft", "ok", f"vLLM serves EAGLE-3 drafts for a {family}")
        return
    yield Finding(
        "draft",
        "warn",
        f"vLLM serves EAGLE-3 drafts for {', '.join(SERVED_FAMILIES)}, not for a {family}",
        "no draft can be trained for it here; patches 01 to 03 of third_party/vllm add a family",
    )
