"""The sanity floor: a draft that has learnt nothing."""

import torch

from eagle3.draft.model import DraftModel
from eagle3.draft.target_weights import TargetWeights


def untrained(draft: DraftModel, weights: TargetWeights, seed: int = 0) -> DraftModel:
    """A draft of the same shape and vocabulary as a training would begin with, in float32."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = DraftModel(draft.config)
    model.take_from_target(weights, draft.vocabulary, train_head=True)
    return model.float()
