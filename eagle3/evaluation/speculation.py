"""Generation by a target, with a draft or alone: the loop that vLLM's CPU runner does not have."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from eagle3.evaluation.acceptance import Acceptance
from eagle3.evaluation.drafting import Drafter
from eagle3.evaluation.target import Target
from eagle3.evaluation.verification import verify


@dataclass(frozen=True)
class Decoding:
    """How to generate; temperature 0 is greedy. Generation ends with one of `stop_ids`."""

    speculative_tokens: int
    max_new_tokens: int
    temperature: float = 0.0
    stop_ids: frozenset[int] = frozenset()
    seed: int = 0


@dataclass(frozen=True)
class Generation:
    """`tokens` without the prompt; `seconds` from the end of the prompt's pass."""

    tokens: tuple[int, ...]
    acceptance: Acceptance
    seconds: float


@torch.inference_mode()
def generate(
    target: Target, drafter: Drafter | None, prompt: Sequence[int], decoding: Decoding
) -> Generation:
    """The target's continuation of `prompt`, the same with any draft and with none.

    Without a draft each step gives one token.
    """
    generator = torch.Generator().manual_seed(decoding.seed)
    target.start()
    if drafter is not None:
        drafter.start()
    logits_SV, states_T3H = target.read(prompt, scores=1)
    tokens = [verify(logits_SV, (), decoding.temperature, generator).next_token]
    # What follows each row that the draft has not seen.
    following = [*prompt[1:], tokens[0]]
    acceptance = Acceptance.none(decoding.speculative_tokens)
    began = time.perf_counter()
    while len(tokens) < decoding.max_new_tokens and decoding.stop_ids.isdisjoint(tokens):
        drafted: list[int] = []
        if drafter is not None:
            following_T = torch.tensor(following, device=target.device)
            drafted = drafter.draft(following_T, states_T3H, decoding.speculative_tokens)
        logits_SV, states_T3H = target.read([tokens[-1], *drafted], scores=len(drafted) + 1)
        verdict = verify(logits_SV, drafted, decoding.temperature, generator)
        acceptance = acceptance.with_step(verdict.accepted)
        following = [*drafted[: verdict.accepted], verdict.next_token]
        states_T3H = states_T3H[: len(following)]
        tokens += following
        # All but the last token, which is the target's own and was not read yet.
        target.forget(len(prompt) + len(tokens) - 1)
    return Generation(_cut(tokens, decoding), acceptance, time.perf_counter() - began)


def _cut(tokens: list[int], decoding: Decoding) -> tuple[int, ...]:
    """Without what a step accepted beyond the end."""
    ends = [i + 1 for i, token in enumerate(tokens) if token in decoding.stop_ids]
    return tuple(tokens[: min([*ends, decoding.max_new_tokens])])
