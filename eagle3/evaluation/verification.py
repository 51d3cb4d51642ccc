"""What the target accepts of a drafted chain, so that its output stays exactly its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Verdict:
    """The first `accepted` drafted tokens hold; `next_token` is the target's own after them."""

    accepted: int
    next_token: int


def verify(
    logits_SV: torch.Tensor,
    drafted: Sequence[int],
    temperature: float,
    generator: torch.Generator,
) -> Verdict:
    """Verifies K = S - 1 drafted tokens; row i scores what follows the first i of them.

    At temperature 0 a token holds where the target would have chosen it. Above, a chain that was
    drafted by argmax is a proposal q that is certain of its token x, and speculative sampling
    (arXiv 2211.17192) accepts x with probability p(x) and otherwise draws from what is left of p
    without x, so that the token is distributed as p. vLLM 0.16.0 does the same
    (`v1/sample/rejection_sampler.py`, `draft_probs=None`).
    """
    if temperature == 0.0:
        choices = logits_SV.argmax(dim=-1).tolist()
        accepted = next((i for i, x in enumerate(drafted) if x != choices[i]), len(drafted))
        return Verdict(accepted, choices[accepted])
    probabilities_SV = (logits_SV / temperature).softmax(dim=-1)
    for i, token in enumerate(drafted):
        left_V = probabilities_SV[i]
        if _uniform(generator) >= left_V[token]:
            left_V[token] = 0.0
            return Verdict(i, _draw(left_V, generator))
    return Verdict(len(drafted), _draw(probabilities_SV[-1], generator))


def _uniform(generator: torch.Generator) -> float:
    return torch.rand((), dtype=torch.float64, generator=generator).item()


def _draw(weights_V: torch.Tensor, generator: torch.Generator) -> int:
    return int(torch.multinomial(weights_V.cpu(), 1, generator=generator))
