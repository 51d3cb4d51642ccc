"""Verification leaves the target's distribution as it is."""

import torch

from eagle3.evaluation.verification import Verdict, verify

VOCAB_SIZE = 6
DRAWS = 2000
# Chi-square with five degrees of freedom is above this once in 10,000 times.
CHI_SQUARE = 25.7


def logits(seed: int = 0) -> torch.Tensor:
    return torch.randn(3, VOCAB_SIZE, generator=torch.Generator().manual_seed(seed))


def test_greedy_accepts_what_the_target_would_choose() -> None:
    logits_SV = torch.full((3, VOCAB_SIZE), -1.0)
    logits_SV[[0, 1, 2], [4, 2, 5]] = 1.0
    generator = torch.Generator()
    assert verify(logits_SV, [4, 2], 0.0, generator) == Verdict(2, 5)
    assert verify(logits_SV, [4, 3], 0.0, generator) == Verdict(1, 2)
    # The second would hold if the first did.
    assert verify(logits_SV, [3, 2], 0.0, generator) == Verdict(0, 4)
    assert verify(logits_SV[:1], [], 0.0, generator) == Verdict(0, 4)


def chi_square(counts_V: torch.Tensor, probabilities_V: torch.Tensor) -> float:
    expected_V = counts_V.sum() * probabilities_V
    return float(((counts_V - expected_V).square() / expected_V).sum())


def test_sampled_tokens_are_distributed_as_the_targets() -> None:
    temperature = 0.7
    logits_SV = logits()
    # The draft proposes likely tokens, so that all rows are reached often.
    drafted = logits_SV[:2].argmax(dim=-1).tolist()
    expected_SV = (logits_SV / temperature).softmax(dim=-1)
    generator = torch.Generator().manual_seed(1)
    first_V, second_V, third_V = torch.zeros(3, VOCAB_SIZE)
    for _ in range(DRAWS):
        verdict = verify(logits_SV, drafted, temperature, generator)
        tokens = [*drafted[: verdict.accepted], verdict.next_token]
        first_V[tokens[0]] += 1
        # Only after the drafted tokens do the next rows score what follows.
        if verdict.accepted >= 1:
            second_V[tokens[1]] += 1
        if verdict.accepted == 2:
            third_V[tokens[2]] += 1
    for counts_V, expected_V in zip((first_V, second_V, third_V), expected_SV, strict=True):
        assert counts_V.sum() > 100
        assert chi_square(counts_V, expected_V) < CHI_SQUARE


def test_the_input_stays_as_it_was() -> None:
    logits_SV = logits()
    verify(logits_SV, [0, 0], 1.0, torch.Generator().manual_seed(0))
    assert torch.equal(logits_SV, logits())


def test_a_certain_token_is_always_accepted() -> None:
    logits_SV = torch.full((2, VOCAB_SIZE), -1e9)
    logits_SV[:, 3] = 0.0
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        assert verify(logits_SV, [3], 1.0, generator) == Verdict(1, 3)
