"""Refuses states that no healthy target gives.

A draft trained on zeros or NaN shows a falling loss and accepts nothing, and the cause is found
weeks later; so such states are never stored.
"""

import torch

from eagle3.errors import EngineError


def check_states(
    hidden_states_TLH: torch.Tensor, capture_points: tuple[int, ...], place: str
) -> None:
    """Raises EngineError for a row (one token at one capture point) with NaN or Inf, or all zero.

    `place` names the sample in the message.
    """
    # The largest value of a row is NaN where any is, and zero where all are: one pass is enough.
    peak_TL = hidden_states_TLH.abs().amax(dim=2)
    for unfit_TL, fault in ((~peak_TL.isfinite(), "NaN or Inf"), (peak_TL == 0, "all zero")):
        if unfit_TL.any():
            token, layer = unfit_TL.nonzero()[0].tolist()
            raise EngineError(
                f"{place}: the target's states are {fault} at token {token}, capture point "
                f"{capture_points[layer]} ({int(unfit_TL.sum())} such rows), so its batch was not "
                "stored; check the checkpoint and its dtype"
            )
