"""Random drafts for the small targets, exported."""

from pathlib import Path
from typing import Any

import torch

from eagle3.draft.config import draft_config_for
from eagle3.draft.export import export_draft
from eagle3.draft.model import DraftModel
from eagle3.draft.provenance import Provenance
from eagle3.draft.target_weights import read_target_weights
from eagle3.draft.vocabulary import VocabularyMap
from tests.integration.tiny_models import VOCAB_SIZE

DRAFT_VOCAB_SIZE = 512
POINTS = (2, 4, 5)


def exported(target: Path, folder: Path, **overrides: Any) -> Path:
    """A random draft for `target`, each norm with random weights so that none can be left out."""
    torch.manual_seed(1)
    points = overrides.pop("capture_points", POINTS)
    model = DraftModel(draft_config_for(target, DRAFT_VOCAB_SIZE, points, **overrides))
    vocabulary = VocabularyMap.of(torch.randperm(VOCAB_SIZE)[:DRAFT_VOCAB_SIZE], VOCAB_SIZE)
    model.take_from_target(read_target_weights(target), vocabulary, train_head=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.copy_(1 + 0.3 * torch.randn_like(parameter))
    export_draft(model, folder, Provenance(target))
    return folder
